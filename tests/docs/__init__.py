"""The pages, executed."""
