"""Owns ids: each is another one, in every process, however many are made."""

from __future__ import annotations

import os
import re

from turnscript.gateway.headers import random_hex


def test_no_id_comes_twice() -> None:
    made = [random_hex(size) for _ in range(1000) for size in (12, 16)]
    assert len(made) == len(set(made)) == len({one[:24] for one in made})
    assert all(re.fullmatch("[0-9a-f]{24}|[0-9a-f]{32}", one) for one in made)


def test_a_process_that_was_split_off_makes_others() -> None:
    random_hex(16)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, random_hex(16).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert random_hex(16) != os.read(reading, 32).decode()
    os.close(reading)
    os.close(writing)
