"""Owns the unit tests of sampling presets: the figures of the model cards, and which number a range gives."""

import pytest

import turnscript as ts
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.core.presets import Range

FIELDS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "penalty_decay")


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        pytest.param("math", (0.3, 0.3, 0, 0, 0.996), id="R-A-24 R-G-20"),
        pytest.param("chat", (1.0, 0.3, 0.5, 0.5, 0.996), id="R-A-25 R-G-21"),
        pytest.param("creative", (0.6, Range(0.6, 0.8), Range(1, 2), Range(0, 0.2), 0.99), id="R-A-26 R-G-22"),
        pytest.param("chat-2026", (1.0, 0.5, 2, 0.1, 0.99), id="S10 D-G-11"),
    ],
)
def test_a_preset_has_the_figures_of_its_card(name: str, figures: tuple[float | Range, ...]) -> None:
    preset = ts.get_preset(name)
    assert figures == tuple(getattr(preset, field) for field in FIELDS)
    assert name == preset.name


def test_of_a_range_the_midpoint_is_used() -> None:
    """D-G-11."""
    expected = {
        "temperature": 0.6,
        "top_p": 0.7,
        "presence_penalty": 1.5,
        "frequency_penalty": 0.1,
        "penalty_decay": 0.99,
    }
    assert expected == ts.get_preset("creative").values()


@pytest.mark.parametrize("name", ts.presets())
def test_the_values_of_a_preset_are_one_number_for_each_field(name: str) -> None:
    preset = ts.get_preset(name)
    values = preset.values()
    assert FIELDS == tuple(values)
    for field, value in values.items():
        given = getattr(preset, field)
        low, high = (given.low, given.high) if isinstance(given, Range) else (given, given)
        assert low <= value <= high


def test_the_presets_are_listed() -> None:
    """D-G-11: the newer card gives no figures for creative writing, so there is no preset that pretends to."""
    assert ["math", "chat", "creative", "chat-2026"] == ts.presets()


def test_an_unknown_preset_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="unknown preset 'maths'; did you mean 'math'"):
        ts.get_preset("maths")


def test_a_range_goes_up() -> None:
    with pytest.raises(InvalidInput, match=r"from low to high, here from 0\.8 to 0\.6"):
        Range(0.8, 0.6)
    assert 0.5 == Range(0.5, 0.5).midpoint
