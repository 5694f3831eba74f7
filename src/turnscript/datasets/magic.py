"""Owns the figures that RWKV-LM's trainer asks for about a binidx file, and how it is told of the loss mask.

The trainer sees the tokens as slots of `ctx_len`, and visits them by cubing: slot `(f * i^3) % p` for the i-th sample,
where p is the magic prime. With p % 3 == 2 cubing visits every slot below p once. It asserts that p is a prime, that
p % 3 == 2 and that p is more than 0.9 of the slots and not more than all. Its own scripts offer the largest such prime
that is less than the number of slots. For 67 small numbers of slots, the largest 227, that one fails the assert.
"""

from __future__ import annotations

from itertools import count

from msgspec import Struct

from turnscript.core.errors import InvalidInput

_LEAST_SHARE = 0.9
_LEAST_SLOTS = 12
"""Fewer never have a prime."""
# These bases tell all primes below 3.3e24 (Sorenson and Webster); there will be no more slots than that.
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)


class Magic(Struct, frozen=True):
    """What the trainer needs for `tokens` tokens in slots of `ctx_len`.

    `prime` is None where no prime fits; then `reason` says why, and `repeat` is how often the data has to be written
    for one to exist, and not less often than it is.
    """

    tokens: int
    ctx_len: int
    slots: int
    prime: int | None
    reason: str = ""
    repeat: int = 1

    @property
    def line(self) -> str:
        """Return the options for the trainer's command line; empty where there is no prime."""
        if self.prime is None:
            return ""
        return f"--my_exit_tokens {self.tokens} --magic_prime {self.prime} --ctx_len {self.ctx_len}"


def magic(tokens: int, ctx_len: int, times: int = 1) -> Magic:
    """Return the magic prime of a file, or why it has none. Raises InvalidInput for a length that no context has.

    `times`: how many times the data is written in these tokens.

    >>> magic(1_000_000, 4096).line
    '--my_exit_tokens 1000000 --magic_prime 239 --ctx_len 4096'
    >>> magic(300_000, 4096).prime
    71
    >>> magic(290_000, 4096).repeat
    2
    """
    if ctx_len < 1:
        raise InvalidInput(f"a context of {ctx_len} tokens is none; give at least 1", path="$.ctx_len")
    slots = tokens // ctx_len
    prime = fitting_prime(slots)
    if prime is not None:
        return Magic(tokens, ctx_len, slots, prime)
    return Magic(tokens, ctx_len, slots, None, _reason(tokens, ctx_len, slots), _repeat(tokens, ctx_len, times))


def fitting_prime(slots: int) -> int | None:
    """Return the prime that the trainer's scripts offer for so many slots, if the trainer takes it."""
    prime = _offered(slots)
    return prime if prime is not None and prime / slots > _LEAST_SHARE else None


def _offered(slots: int) -> int | None:
    """Return the largest prime below the number of slots with p % 3 == 2."""
    largest = slots - 1
    for number in range(largest - (largest - 2) % 3, 1, -3):
        if is_prime(number):
            return number
    return None


def is_prime(number: int) -> bool:
    """Return whether a number is a prime, by Miller and Rabin's test with bases that make it certain."""
    if number < 2:
        return False
    for prime in _WITNESSES:
        if number % prime == 0:
            return number == prime
    odd, twos = number - 1, 0
    while not odd % 2:
        odd //= 2
        twos += 1
    return not any(_is_witness(base, odd, twos, number) for base in _WITNESSES)


def _is_witness(base: int, odd: int, twos: int, number: int) -> bool:
    """Return whether a base proves that the number is no prime."""
    power = pow(base, odd, number)
    if power in (1, number - 1):
        return False
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return False
    return True


def _reason(tokens: int, ctx_len: int, slots: int) -> str:
    has = f"tokens: {tokens}, slots of {ctx_len}: {slots}"
    offered = _offered(slots)
    if offered is None:
        return f"{has}; there is no prime p with p % 3 == 2 below the number of slots"
    share = f"only {offered / slots:.2f} of the slots; the trainer asserts more than {_LEAST_SHARE}"
    return f"{has}; the largest prime p below that with p % 3 == 2 is {offered}, {share}"


def _repeat(tokens: int, ctx_len: int, times: int) -> int:
    """Return how many times the data has to be written that makes these tokens in so many times; 0 if there is none.

    The search ends soon: every number of slots above 227 has a prime.
    """
    if not tokens:
        return 0
    least = -(-_LEAST_SLOTS * ctx_len * times // tokens)
    return next(n for n in count(max(least, times)) if fitting_prime(tokens * n // times // ctx_len) is not None)


def trainer_change(scale: int = 1) -> str:
    """Return what to change in RWKV-LM's trainer so that it reads the mask. `scale`: the weight that stands for 1.

    The loss that the trainer computes in CUDA knows no weights, and a target of -100 would train it on nonsense, so the
    change replaces that loss.
    """
    weight = "weights.float()" if scale == 1 else f"weights.float() / {scale}"
    return _CHANGE.format(weight=weight)


_CHANGE = """\
src/dataset.py, in __init__, below the line that opens the data:
    self.mask = MMapIndexedDataset(args.data_file + ".mask")
src/dataset.py, in __getitem__, in place of the last line:
    return x, y, torch.from_numpy(self.mask.get(idx=0, offset=i, length=req_len)[1:].copy())
src/model.py, in training_step, in place of its lines (run with --head_chunk 0, so that it has logits):
    idx, targets, weights = batch
    logits, weights = self(idx), {weight}
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    return (loss * weights.flatten()).sum() / weights.sum().clamp(min=1)
"""
