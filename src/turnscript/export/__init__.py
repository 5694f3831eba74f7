"""Owns what a format is exported as for other programs: a chat template in Jinja, and a response template."""
