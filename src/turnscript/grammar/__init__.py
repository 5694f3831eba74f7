"""Owns grammars of what a model may write: rules as values, schemas as rules, and the notations of model servers."""
