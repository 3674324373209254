"""Load, faults and recordings for the crash tests."""
