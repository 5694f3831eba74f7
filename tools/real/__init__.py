"""Owns `make real`: tool tasks asked of a real model through each API, beside llama.cpp's own chat endpoint."""
