"""Random programmes, run on the reference and on the real store at once."""
