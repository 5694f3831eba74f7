"""Owns what several backends read alike."""
