"""Benchmarks: turnscript and its peers in one run. README.md says how to start them and read them."""
