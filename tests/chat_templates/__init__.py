"""Tests of models' own chat templates: as programs, as writers, and the tables that read what they write."""
