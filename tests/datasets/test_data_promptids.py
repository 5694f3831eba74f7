"""Owns the checks of what verification asks of tokens many at once: the same as is told of each by itself."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets import tinytokenizers
from turnscript.datasets.promptids import PromptIds
from turnscript.datasets.tokenbytes import TokenBytes
from turnscript.datasets.tokenizer import Tokenizer
from turnscript.datasets.tokenizers import get_tokenizer

PARTS = ["a", "ab", " ", "\n", "\n\n", "中文。", "\U0001f600", "User", "Assistant", ":", " think", "function", "    "]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """Tokenizers whose ids tell their bytes, and those whose ids do not; one of them with tags."""
    folder = tmp_path_factory.mktemp("tokenizers")
    (folder / "tags.json").write_text('{"controls": {"<|im_start|>": 65530, "<|im_end|>": 65531}}')
    specs = [
        "bytes",
        "rwkv-world",
        f"rwkv-world+{folder / 'tags.json'}",
        tinytokenizers.byte_level(folder / "a.json"),
        tinytokenizers.metaspace(folder / "b.json"),
        tinytokenizers.words(folder / "c.json"),
    ]
    return [get_tokenizer(spec) for spec in specs]


def begun_alike(tokenizer: Tokenizer, text: str, cuts: Sequence[int]) -> int:
    """How many beginnings of a text have the ids that it begins with: each is encoded by itself."""
    (ids,) = tokenizer.encode([text])
    found = tokenizer.encode([text[:cut] for cut in cuts])
    return sum(one == ids[: len(one)] for one in found)


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=12), st.data())
def test_prompts_that_wait_together_are_counted_as_each_by_itself(
    kinds: list[Tokenizer], parts: list[str], draw: st.DataObject
) -> None:
    text = "".join(parts)
    cuts = sorted(draw.draw(st.lists(st.integers(1, len(text)), max_size=5)))
    for tokenizer in kinds[:5]:
        (ids,) = tokenizer.encode([text])
        found = PromptIds(tokenizer)
        for ends in (tokenizer.ends(text, ids), None):
            found.add(text.encode(), [len(text[:cut].encode()) for cut in cuts], np.array(ids, np.uint32), ends)
        assert 2 * begun_alike(tokenizer, text, cuts) == found.exact()


def test_a_sample_with_other_ids_than_its_text_has_is_no_beginning() -> None:
    tokenizer = get_tokenizer("rwkv-world")
    ids = [*tokenizer.encode(["a"])[0], *tokenizer.encode(["b"])[0], *tokenizer.encode([" c"])[0]]
    assert ids != tokenizer.encode(["ab c"])[0]
    found = PromptIds(tokenizer)
    found.add(b"ab c", [2, 4], np.array(ids, np.uint32), tokenizer.ends("ab c", ids))
    assert 0 == found.exact()


def test_ids_spell_what_they_are_decoded_to(kinds: list[Tokenizer], tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    for tokenizer in kinds:
        known = TokenBytes(tokenizer)
        ends = [] if tokenizer.end is None else [tokenizer.end]
        (some,) = tokenizer.encode(["the weather"])
        pool = np.array([*some, *tokenizer.controls.values(), *ends], np.uint32)
        if tokenizer.lengths is not None:
            pool = np.concatenate([pool, np.flatnonzero(tokenizer.lengths).astype(np.uint32)])
        for count in (0, 1, 9, 70_000):
            ids = rng.choice(pool, count).astype(np.uint32)
            data, widths = known.spell(ids)
            assert tokenizer.decode(ids.tolist()) == data
            assert [len(tokenizer.decode([one])) for one in ids[:50].tolist()] == widths[:50].tolist()
