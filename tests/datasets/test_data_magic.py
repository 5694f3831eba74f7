"""Owns the figures for RWKV-LM's trainer: its asserts hold for every prime that is given out, and none is missed."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnscript.core.errors import InvalidInput
from turnscript.datasets.magic import fitting_prime, is_prime, magic, trainer_change

# Numbers of slots for which the trainer's scripts offer a prime that its own assert refuses, or none at all.
REFUSED = [
    *range(3, 12), *range(13, 18), *range(19, 24), *range(26, 30), *range(33, 42), 46, 47, 53, 59, *range(66, 72),
    *range(79, 84), *range(99, 102), *range(126, 132), 166, 167, *range(219, 228),
]  # fmt: skip


def slow_is_prime(number: int) -> bool:
    return number > 1 and all(number % one for one in range(2, math.isqrt(number) + 1))


def check_as_the_trainer_does(prime: int, tokens: int, ctx_len: int) -> None:
    """Its asserts, and that each sample can be read: the ids of a slot and one more."""
    slots = tokens // ctx_len
    assert slow_is_prime(prime)
    assert 2 == prime % 3
    assert 0.9 < prime / slots <= 1
    assert (prime - 1) * ctx_len + ctx_len + 1 <= tokens


@given(tokens=st.integers(0, 3_000_000), ctx_len=st.sampled_from([1, 16, 512, 4096]))
def test_every_prime_that_is_given_out_passes_the_trainers_asserts(tokens: int, ctx_len: int) -> None:
    found = magic(tokens, ctx_len)
    assert tokens // ctx_len == found.slots
    if found.prime is not None:
        check_as_the_trainer_does(found.prime, tokens, ctx_len)
        assert f"--my_exit_tokens {tokens} --magic_prime {found.prime} --ctx_len {ctx_len}" == found.line
        assert ("", 1) == (found.reason, found.repeat)
    else:
        assert "" == found.line
        assert str(tokens) in found.reason


def test_the_prime_is_the_one_that_the_trainers_scripts_offer() -> None:
    for slots in range(3, 3000):
        offered = next((p for p in range(slots - 1, 0, -1) if p % 3 == 2 and slow_is_prime(p)), None)
        assert fitting_prime(slots) in (offered, None)


def test_all_numbers_of_slots_without_a_prime_are_known() -> None:
    assert 67 == len(REFUSED)
    assert [0, 1, 2, *REFUSED] == [slots for slots in range(3000) if fitting_prime(slots) is None]


@pytest.mark.parametrize("slots", REFUSED)
def test_the_least_repetition_that_has_a_prime_is_named(slots: int) -> None:
    tokens = slots * 4096 + 17
    found = magic(tokens, 4096)
    assert found.prime is None
    assert found.repeat > 1
    assert magic(tokens * found.repeat, 4096).prime is not None
    assert all(magic(tokens * less, 4096).prime is None for less in range(1, found.repeat))


@given(slots=st.sampled_from(REFUSED), times=st.integers(2, 30))
def test_a_repetition_counts_from_the_data_and_not_from_what_is_repeated_already(slots: int, times: int) -> None:
    once = slots * 4096 + 17
    found = magic(once * times, 4096, times)
    if found.prime is None:
        assert magic(once * found.repeat, 4096).prime is not None
        assert all(magic(once * less, 4096).prime is None for less in range(times, found.repeat))


def test_why_there_is_no_prime_is_said() -> None:
    reason = "tokens: 286720, slots of 4096: 70; the largest prime p below that with p % 3 == 2 is 59, only 0.84 of"
    assert magic(70 * 4096, 4096).reason.startswith(reason)
    assert "slots of 4096: 1; there is no prime" in magic(5000, 4096).reason
    assert 0 == magic(0, 4096).repeat
    few = magic(1, 4096)
    assert 12 * 4096 == few.repeat
    assert magic(few.repeat, 4096).prime is not None
    with pytest.raises(InvalidInput, match="at least 1"):
        magic(100, 0)


def test_large_files_have_a_prime_at_once() -> None:
    found = magic(10**15 + 3, 4096)
    assert found.prime is not None
    assert 2 == found.prime % 3
    assert found.slots - found.prime < 2000


def test_primes_are_told_from_all_other_numbers() -> None:
    assert [one for one in range(20_000) if slow_is_prime(one)] == [one for one in range(20_000) if is_prime(one)]
    # Numbers that pass the test with few bases, and large ones whose factors are known.
    for composite in (2047, 1_373_653, 25_326_001, 3_215_031_751, 3_825_123_056_546_413_051, (2**31 - 1) * (2**61 - 1)):
        assert not is_prime(composite)
    for prime in (2**31 - 1, 2**61 - 1, 10**18 + 9):
        assert is_prime(prime)


@given(slots=st.integers(3, 400))
def test_the_prime_lets_the_trainer_visit_every_slot_below_it_once(slots: int) -> None:
    prime = fitting_prime(slots)
    if prime is not None:
        factor = int(prime * (math.sqrt(5) - 1) / 2)
        assert set(range(prime)) == {(factor * at**3) % prime for at in range(1, prime + 1)}


def test_the_change_for_the_trainer_reads_the_mask_that_is_written() -> None:
    """Its lines are Python, and they name the file that stands beside the ids."""
    text = trainer_change()
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    for line in lines:
        compile(f"def step(self):\n{line}", "change", "exec")
    assert 'args.data_file + ".mask"' in text
    assert "/ 255" not in text
    assert "weights.float() / 255" in trainer_change(255)
    assert len(lines) < 8
    assert all(len(line) <= 120 for line in itertools.chain(text.splitlines(), trainer_change(255).splitlines()))
