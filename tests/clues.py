"""Owns the clues that detection is tested with: those of every registered format, and nothing else."""

import turnscript as ts

TABLE = {name: ts.get_format(name).clues for name in ts.formats()}
