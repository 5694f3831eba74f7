"""Owns what several APIs read and write alike."""
