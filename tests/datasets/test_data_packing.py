"""Owns the laws of packing: no token is lost, documents stay whole where that is promised, and windows are full."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.batches import FACTS, Document, Sample, batches, documents, made, samples
from tests.growth import assert_grows_below
from turnscript.core.errors import InvalidInput
from turnscript.datasets import packing
from turnscript.datasets.output import OutputFacts
from turnscript.datasets.packing import best_fit, pack
from turnscript.datasets.packingnames import Packing, read_packing

SIZES = st.integers(1, 31)


def packed(found: list[Document], text: str, size: int = 10, facts: OutputFacts = FACTS) -> list[Sample]:
    return samples(pack(batches(found, size), read_packing(text), facts), chats=True)


def test_the_spellings_are_read_and_written_back() -> None:
    assert Packing() == read_packing("none")
    assert Packing("bfd", 4096) == read_packing("bfd:4096")
    assert Packing("stream", 2) == read_packing("stream:2")
    for text in ("none", "bfd:4096", "stream:128"):
        assert text == str(read_packing(text))
    assert ["none", "bfd:9", "stream:9"] == [t for t in ("none", "bfd:9", "stream:9") if str(read_packing(t)) == t]


@pytest.mark.parametrize(
    "text", ["", "bfd", "bfd:", "bfd:1", "bfd:-5", "bfd:4k", "bfd:²", "none:5", "ffd:4", "stream:9999999999"]
)
def test_other_spellings_are_refused_with_one_that_works(text: str) -> None:
    with pytest.raises(InvalidInput, match="4096"):
        read_packing(text)


def test_only_the_stream_crosses_documents_and_it_says_so() -> None:
    assert [False, False, True] == [read_packing(text).crosses for text in ("none", "bfd:8", "stream:8")]
    assert [0, 8, 0] == [read_packing(text).limit for text in ("none", "bfd:8", "stream:8")]
    assert [] == read_packing("none").notes()
    assert "in the middle of documents; choose bfd:8" in read_packing("stream:8").notes()[0]
    assert "doc_starts" in read_packing("bfd:8").notes()[0]


@given(found=documents(), size=SIZES)
def test_without_packing_samples_are_documents(found: list[Document], size: int) -> None:
    assert [(one.ids, one.weights, [0], [one.source], [one.chat]) for one in found] == packed(found, "none", size)


@given(found=documents(), size=SIZES, window=st.integers(12, 40))
def test_best_fit_keeps_every_document_whole_and_pads_with_the_end(
    found: list[Document], size: int, window: int
) -> None:
    seen: list[Document] = []
    for sample in packed(found, f"bfd:{window}", size):
        assert (window, window) == (len(sample.ids), len(sample.weights))
        assert 0 == sample.starts[0]
        assert sample.starts == sorted(set(sample.starts))
        end = 0
        for at, (start, source) in enumerate(zip(sample.starts, sample.sources, strict=True)):
            document = found[int(source.rpartition(":")[2]) - 1]
            end = start + len(document.ids)
            assert (document.ids, document.weights) == (sample.ids[start:end], sample.weights[start:end])
            assert document.chat == sample.chats[at]
            assert end == (sample.starts[at + 1] if at + 1 < len(sample.starts) else end)
            seen.append(document)
        assert {0} >= set(sample.ids[end:]) | set(sample.weights[end:])
    assert sorted(found, key=lambda one: one.source) == sorted(seen, key=lambda one: one.source)


@given(found=documents(), size=SIZES, window=st.integers(2, 20))
def test_the_stream_is_all_documents_one_behind_another(found: list[Document], size: int, window: int) -> None:
    windows = packed(found, f"stream:{window}", size)
    ids = [one for sample in windows for one in sample.ids]
    weights = [one for sample in windows for one in sample.weights]
    total = sum(len(one.ids) for one in found)
    assert [one for document in found for one in document.ids] == ids[:total]
    assert [one for document in found for one in document.weights] == weights[:total]
    assert -(-total // window) == len(windows)
    assert {0} >= set(ids[total:]) | set(weights[total:])
    begins = list(itertools.accumulate((len(one.ids) for one in found), initial=0))
    for number, sample in enumerate(windows):
        assert 0 == sample.starts[0]
        for start, source, chat in zip(sample.starts, sample.sources, sample.chats, strict=True):
            document = int(source.rpartition(":")[2]) - 1
            place = number * window + start
            assert begins[document] <= place < begins[document + 1]
            assert start == 0 or place == begins[document]
            # A conversation says all of its document, so a piece of one has none.
            whole = place == begins[document] and begins[document + 1] <= (number + 1) * window
            assert chat == (found[document].chat if whole else b"")
    assert len(found) + sum(begin % window != 0 for begin in _cut(begins, window)) == sum(
        len(sample.starts) for sample in windows
    )


def _cut(begins: list[int], window: int) -> list[int]:
    """The borders of windows that lie within a document, as places that are no multiples (for counting)."""
    inside = [at for at in range(window, begins[-1], window) if at not in begins]
    return [at + 1 for at in inside] if window > 1 else inside


@pytest.mark.parametrize("text", ["none", "bfd:4096", "stream:1000"])
def test_windows_do_not_depend_on_how_documents_arrive(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "SEARCHED", 70)
    monkeypatch.setattr(packing, "_SEARCHED_TOKENS", 40_000)
    monkeypatch.setattr(packing, "_EMITTED", 9_000)
    found = made(500)
    assert packed(found, text, 1) == packed(found, text, 77) == packed(found, text, 500)


def test_a_group_of_documents_ends_where_it_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """What best fit looks at together is bounded in documents and in tokens, so windows never mix two groups."""
    monkeypatch.setattr(packing, "SEARCHED", 4)
    monkeypatch.setattr(packing, "_SEARCHED_TOKENS", 20)
    lengths = [1] * 9 + [9, 9, 9, 1, 1]
    found = [Document([5] * length, [1] * length, f"a:{at}") for at, length in enumerate(lengths)]
    groups = [[one.sources for one in packed(found, "bfd:10", size)] for size in (1, 3, 14)]
    names = [f"a:{at}" for at in range(14)]
    assert [[names[0:4], names[4:8], [names[8], names[11]], [names[9]], [names[10]], names[12:14]]] * 3 == groups


def test_a_document_that_fits_no_window_is_refused_with_its_row() -> None:
    found = [Document([1, 0], [1, 0], "a:1"), Document([1] * 11, [1] * 11, "b:7")]
    with pytest.raises(InvalidInput, match="b:7 has 11 tokens, more than a window of 10; refuse or split"):
        packed(found, "bfd:10")
    assert 1 == len(packed(found, "bfd:13"))


def test_a_tokenizer_without_an_end_is_padded_with_0() -> None:
    found = [Document([7], [1], "a:1")]
    assert [7, 0, 0] == packed(found, "bfd:3", facts=OutputFacts(10, None))[0].ids
    assert [7, 9, 9] == packed(found, "stream:3", facts=OutputFacts(10, 9))[0].ids
    assert [7, 9, 9] == packed(found, "bfd:3", facts=OutputFacts(10, 9))[0].ids


@given(lengths=st.lists(st.integers(1, 30), max_size=60))
def test_best_fit_puts_each_document_where_the_least_room_is_left(lengths: list[int]) -> None:
    """The same as the rule carried out slowly, up to which of several equally full windows is taken."""
    rooms: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [room for room in rooms if room >= length]
        if fitting:
            rooms.remove(min(fitting))
            rooms.append(min(fitting) - length)
        else:
            rooms.append(30 - length)
    found = best_fit(lengths, 30)
    assert sorted(rooms) == sorted(30 - sum(lengths[at] for at in window) for window in found)
    assert list(range(len(lengths))) == sorted(itertools.chain.from_iterable(found))
    assert found == sorted(found)
    assert all(window == sorted(window) for window in found)


def test_windows_of_4096_are_full_to_more_than_99_and_a_half_percent() -> None:
    lengths = np.clip(np.random.default_rng(1).lognormal(5.4, 1.2, 10_000), 2, 4096).astype(int)
    windows = best_fit(lengths.tolist(), 4096)
    assert int(lengths.sum()) > 0.995 * 4096 * len(windows)


@pytest.mark.deep
def test_best_fit_is_linear() -> None:
    """Ten times as many documents take less than thirty times as long."""
    rng = np.random.default_rng(2)

    def work(count: int) -> Callable[[], object]:
        lengths = np.clip(rng.lognormal(5.4, 1.2, count), 2, 4096).astype(int).tolist()
        return lambda: best_fit(lengths, 4096)

    assert_grows_below(30, work, 2_000, 20_000)
