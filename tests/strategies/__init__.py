"""Owns the generators of test data: API bodies from the SDKs' own types, hostile texts, oddly spelled JSON."""
