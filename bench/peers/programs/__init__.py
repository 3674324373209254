"""What runs in the contestants' own processes, each in its own environment."""
