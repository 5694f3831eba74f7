"""Owns the tests of the gateway: with real servers on this machine, and scripted ones for what real ones seldom do."""
