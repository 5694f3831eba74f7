"""Owns how many examples a law of formats draws: it is held on every format, so fewer than one that stands alone."""

from hypothesis import settings


def fewer() -> settings:
    """Two fifths of the examples of the profile in use."""
    assert settings.default is not None
    return settings(max_examples=max(1, settings.default.max_examples * 2 // 5))
