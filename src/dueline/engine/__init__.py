"""The rules of the queue. This package does no I/O, starts no thread and imports nothing of ours outside itself."""
