"""Owns chat templates as programs: what they write, and how they are held in bounds."""
