"""The rules of the queue. Does no I/O and starts no thread. Imports nothing from the layers above it."""
