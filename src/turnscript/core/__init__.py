"""Owns what everything stands on: the conversation, events, errors, losses, and JSON and server-sent events as text."""
