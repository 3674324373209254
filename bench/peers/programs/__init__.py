"""The programs that run in the contestants' own processes and environments."""
