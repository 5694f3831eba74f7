"""Figures about samples are exact, do not depend on how the samples came, and make a page that needs nothing else."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnscript.cli.data.stats import page as figures
from turnscript.datasets.page import stats_page
from turnscript.datasets.stats import Stats

SAMPLES = st.lists(
    st.integers(0, 70_000).flatmap(lambda length: st.tuples(st.just(length), st.integers(0, length))), max_size=30
)


def of(samples: list[tuple[int, int]]) -> Stats:
    stats = Stats()
    if samples:
        stats.add([length for length, _ in samples], [trained for _, trained in samples])
    return stats


@given(SAMPLES, st.integers(0, 30))
def test_it_does_not_matter_how_samples_are_batched(samples: list[tuple[int, int]], cut: int) -> None:
    whole, parts = of(samples), Stats()
    for part in (samples[:cut], samples[cut:]):
        parts.add(np.array([one for one, _ in part], np.int64), np.array([one for _, one in part], np.int64))
    assert json.dumps(whole.facts()) == json.dumps(parts.facts())


@given(SAMPLES)
def test_every_sample_is_in_one_bucket_and_in_one_tenth(samples: list[tuple[int, int]]) -> None:
    stats = of(samples)
    assert len(samples) == stats.samples == sum(bucket.samples for bucket in stats.buckets()) == sum(stats.shares)
    assert sum(length for length, _ in samples) == stats.tokens == sum(bucket.tokens for bucket in stats.buckets())
    assert sum(1 for _, trained in samples if not trained) == stats.untrained
    for bucket in stats.buckets():
        assert bucket.samples == sum(1 for length, _ in samples if bucket.least <= length <= bucket.most)
    for before, after in zip(stats.buckets(), stats.buckets()[1:], strict=False):
        assert before.most + 1 == after.least


@given(SAMPLES.filter(bool), st.integers(0, 100))
def test_so_many_percent_are_no_longer_than_the_quantile(samples: list[tuple[int, int]], percent: int) -> None:
    stats = of(samples)
    found = stats.quantile(percent)
    lengths = [length for length, _ in samples]
    assert found in lengths
    assert sum(1 for length in lengths if length <= found) >= len(lengths) * percent / 100
    assert sum(1 for length in lengths if length < found) <= len(lengths) * percent / 100


def test_the_figures_of_four_samples() -> None:
    stats = of([(10, 5), (10, 10), (600, 0), (5000, 50)])
    assert (4, 5620, 65, 1) == (stats.samples, stats.tokens, stats.trained, stats.untrained)
    assert [2, 0, 0, 0, 0, 1, 0, 0, 0, 1] == stats.shares
    assert [(512, 2, 5600), (1024, 1, 5000), (2048, 1, 5000), (4096, 1, 5000)] == list(stats.beyond())
    assert (10, 10, 5000, 1405.0) == (stats.shortest, stats.quantile(50), stats.longest, stats.mean)


def test_a_sample_as_long_as_a_context_fits_it() -> None:
    assert [] == list(of([(512, 1)]).beyond())
    assert [512] == [beyond.context for beyond in of([(513, 1)]).beyond()]


def test_no_samples_are_no_trouble() -> None:
    facts = Stats().facts()
    assert (0, 0.0, []) == (facts["samples"], facts["trained_share"], facts["histogram"])
    assert "0 samples" in stats_page("empty", Stats())


class Reader(HTMLParser):
    """Notes what a page is made of, and that every element is closed in order."""

    EMPTY = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.said: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.said.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert [] == reader.open
    return reader


@pytest.fixture
def stats() -> Stats:
    stats = of([(10, 5), (600, 0), (5000, 50)])
    stats.add_tokens("<user>", 5000, 0)
    stats.add_tokens("assistant", 610, 55)
    stats.forms.update({"a & b": 3})
    stats.rejects.update({"E_ROLE": 2, "E_JSON": 7})
    stats.straddling = 3
    return stats


def test_a_page_of_figures_needs_nothing_else_and_runs_nothing(stats: Stats) -> None:
    page = stats_page('run "<1>"', stats)
    reader = read(page)
    assert not {"script", "link", "img", "iframe"} & set(reader.tags)
    assert [] == [value for name, value in reader.attributes if name in {"src", "href"} or name.startswith("on")]
    assert [] == re.findall(r"https?:|url\(|@import", page)
    assert "prefers-color-scheme: dark" in page


def test_a_page_of_figures_says_what_the_figures_say(stats: Stats) -> None:
    said = read(stats_page('run "<1>"', stats)).said
    text = " ".join(said)
    assert 'run "<1>"' in said
    assert "3 samples, 5,610 tokens, of which 55 (1.0%) are trained." in said
    for expected in ("<user>", "a & b", "E_ROLE", "4,096 to 8,191", "4,096", "samples without a trained token"):
        assert expected in said, text
    assert said.index("E_JSON") < said.index("E_ROLE"), "the most frequent reason comes first"


def test_what_cannot_be_seen_in_a_name_is_an_escape(stats: Stats) -> None:
    stats.loss_kinds.update({"$.\u202e<b>\x1b[31m\x00": 1})
    assert "$.\\u202e<b>\\x1b[31m\\x00" in read(stats_page("run", stats)).said


@pytest.mark.parametrize(("count", "said"), [(1, "1 token straddles a border"), (2, "2 tokens straddle a border")])
def test_one_thing_is_told_as_one(stats: Stats, count: int, said: str) -> None:
    stats.straddling = count
    assert said in list(figures(stats))


def test_the_longest_bar_is_the_most_frequent() -> None:
    stats = of([(10, 1), (10, 1), (300, 1)])
    widths = re.findall(r'<span class="bar" style="width:([\d.]+)%"', stats_page("bars", stats).split("Share of")[0])
    assert ["100.0", "50.0"] == widths
