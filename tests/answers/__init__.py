"""Owns answers of every kind, and the official SDKs, in Python and in JavaScript, that must all understand them."""
