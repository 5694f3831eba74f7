"""Owns the tests of chat templates that models bring: where they come from, and what is made of them."""
