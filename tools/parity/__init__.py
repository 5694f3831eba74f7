"""Owns the comparison of prompts that a model's own template writes: ours beside those of transformers."""
