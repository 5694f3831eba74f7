"""Owns a model's own chat template as the writer of its prompts."""
