"""Owns the playground: a page, served on this machine, that shows what turnscript does with what one pastes.

What it knows of formats and APIs it asks the library for: modules of plain functions with typed results, and a thin
layer of HTTP around them. The page itself only shows what these say.
"""
