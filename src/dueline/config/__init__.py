"""Configuration: one frozen value (`settings`), filled from several sources (`load`), listed key by key (`table`)."""
