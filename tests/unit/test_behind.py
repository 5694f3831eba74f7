"""Owns the checks of what stands behind the end of a stream: one issue counts it, and no other issue is touched."""

from __future__ import annotations

from turnscript.core.conversation import Issue
from turnscript.core.sse import SseReader
from turnscript.core.unread_stream import BEHIND, Behind


def test_the_issue_is_kept_up_to_date_where_it_stands_and_others_stay() -> None:
    first, theirs = Issue("cut_call", "a"), Issue("missing_reason", "b")
    issues = [first]
    behind = Behind(SseReader(), issues)
    behind.feed(b"data: one\n\n")
    issues.append(theirs)  # by whoever was given the end
    behind.feed(b"data: two\n\ndata: three\n\n")
    assert [first, theirs] == [one for one in issues if one.kind != BEHIND]
    (own,) = [one for one in issues if one.kind == BEHIND]
    assert own.detail.startswith("3 events stand behind the end")
    assert own.detail.endswith("the first: one")


def test_the_issue_that_somebody_took_away_comes_back_with_all_that_it_counts() -> None:
    issues: list[Issue] = []
    behind = Behind(SseReader(), issues)
    behind.feed(b"data: one\n\n")
    issues[:] = [Issue("missing_reason", "b")]
    behind.feed(b"data: two\n\n")
    assert ["missing_reason", BEHIND] == [one.kind for one in issues]
    assert issues[1].detail.startswith("2 events stand")
