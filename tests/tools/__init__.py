"""Tests of what `make` runs for contributors."""
