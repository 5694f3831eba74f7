"""Owns the list of all answers that SDKs judge."""

from tests.answers import called, ended, spoken
from tests.answers.answer import Answer

ALL: list[Answer] = [*spoken.ANSWERS, *called.ANSWERS, *ended.ANSWERS]
BY_NAME = {answer.name: answer for answer in ALL}
WHOLE = [answer for answer in ALL if not answer.is_gone()]
"""Those that can be told in one piece."""
