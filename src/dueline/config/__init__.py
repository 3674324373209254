"""Configuration: one frozen value (`settings`), filled from four places (`load`), described by itself (`table`)."""
