"""Owns the laws: every one of them on every registered format or API, with no list to join and no skip."""
