"""Owns the command line: what one types, reads on the screen and finds in files. `main.main` is the entry point."""
