"""Owns the chat APIs: one module each, ending in `APIS = (...)`. The registry reads them all."""
