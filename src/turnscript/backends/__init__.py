"""Owns the backends: one module each, ending in `BACKENDS = (...)`. The registry reads them all."""
