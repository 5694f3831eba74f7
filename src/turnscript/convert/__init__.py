"""Owns the verbs of the library, and the registry of formats, APIs and backends that they look names up in."""
