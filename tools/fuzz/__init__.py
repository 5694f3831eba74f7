"""Owns the coverage-guided fuzz of all readers: what they are fed, the laws that must hold, and what was found."""
