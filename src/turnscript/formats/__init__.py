"""Owns the prompt formats: one module each, a table and its name in `FORMATS = (...)`. The registry reads them all."""
