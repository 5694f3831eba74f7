"""Owns the checks with real agents, which `make agents` installs; `make agents-test` runs them."""
