"""Owns the machinery that turns a format's table into text and text back into items.

Reading order: `table` (what a format may declare), `spans` and `escape` (what text is made of), `attributes`, `parts`
and `bodies` (the payload shapes), `render` (items to spans), `read` (a whole transcript to items).
"""
