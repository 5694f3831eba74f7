"""Owns comparisons with what others have collected: their cases, their checks."""
