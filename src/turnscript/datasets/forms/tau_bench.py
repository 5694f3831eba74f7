"""Owns runs of tau-bench: an agent, a simulated customer and the tools between them, in the messages of Chat.

    {"task_id": 3, "reward": 1.0, "info": {...}, "trial": 0, "traj": [{"role": "system", "content": "..."}, ...]}

Also tau2-bench, whose runs are in `messages` with another spelling of calls: one run a record, or a file of results
with all of them under `simulations`.

- The simulated customer is the user. Turns stay as they come: several in a row, text beside a call, a last user turn.
- tau-bench keeps no tools with a run; where a record has `tools`, they are read.
- tau2-bench lets the customer call tools too. The agent never saw those calls and results, so they are no part of its
  conversation. The policy that the agent got in its instructions is read as such.
- Rewards, tasks, costs, times and the providers' raw answers are no conversation.

Shape: https://github.com/sierra-research/tau-bench, https://github.com/sierra-research/tau2-bench (2026-08).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnscript.core.conversation import ToolResult
from turnscript.core.json_text import Json, json_of
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import arguments_of, check_unread
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.traces import (
    CHAT,
    check,
    checked,
    elements_of,
    has,
    member,
    members_of,
    of_list,
    relocate,
    request_of,
    text_of_member,
    tools_member,
    under,
    value_of,
)

_CALLER = "requestor"  # codespell:ignore requestor
_RUN = ("termination_reason", "reward_info", "agent_cost", "user_cost")


class TauBench(Form):
    """tau-bench and tau2-bench."""

    name = "tau-bench"
    members = frozenset({"traj", "simulations", "messages"})
    title = "tau-bench runs"
    fields = "`traj` with Chat messages, `task_id`, `reward`; tau2: `messages` and `termination_reason`, `simulations`"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        if isinstance(record.get("traj"), list):
            marks = [name for name in ("task_id", "reward", "trial") if name in record]
            return (1.0 if marks else 0.7), " and ".join(["a list `traj`", *marks[:1]])
        if isinstance(record.get("simulations"), list) and isinstance(record.get("tasks"), list):
            return 1.0, "the lists `simulations` and `tasks`"
        if isinstance(record.get("messages"), list) and any(name in record for name in _RUN) and "task_id" in record:
            return 1.0, "messages of a run with a `task_id`"
        return 0.0, "no `traj`, and no run of a simulation"

    def read(self, data: bytes) -> list[Example]:
        members = members_of(checked(data))
        if "simulations" in members:
            check_unread(members, (), self.name)
            return _results(members)
        if "traj" not in members and any(name in members for name in _RUN):
            check_unread(members, ("messages", "tools"), self.name)
            return [_simulation(members, "$", None)]
        check_unread(members, ("traj", "tools"), self.name)
        traj = member(members, "traj", "$")
        elements_of(traj, "$.traj")
        request = request_of(CHAT, {"messages": bytes(traj), **tools_member(members, "tools")}, under("traj"))
        relocate(request, under("traj"))
        check(request.items, "$.traj")
        return [Example(request)]


# tau2-bench.


def _results(members: Mapping[str, Json]) -> list[Example]:
    runs = elements_of(members["simulations"], "$.simulations")
    if not runs:
        raise BadRow(Code.EMPTY, "there is no run", path="$.simulations")
    policy = _policy(members)
    examples = []
    for index, run in enumerate(runs):
        at = f"$.simulations[{index}]"
        example = _simulation(members_of(run, at), at, policy)
        example.label = f"run {index + 1}"
        examples.append(example)
    return examples


def _policy(members: Mapping[str, Json]) -> Json | None:
    """Return the policy of the environment, which all runs of a file share."""
    if not has(members, "info"):
        return None
    environment = members_of(members["info"], "$.info").get("environment_info", Json(b"null"))
    if bytes(environment) == b"null":
        return None
    return members_of(environment, "$.info.environment_info").get("policy")


def _simulation(members: Mapping[str, Json], at: str, policy: Json | None) -> Example:
    messages: list[bytes] = []
    places: list[str] = []
    failed: set[int] = set()
    policy = members["policy"] if has(members, "policy") else policy
    if policy is not None and bytes(policy)[:1] == b'"':
        messages.append(b'{"role":"system","content":%s}' % bytes(policy))
        places.append(f"{at}.policy")
    value = member(members, "messages", at)
    if bytes(value) == b"null":
        raise BadRow(Code.EMPTY, "the run has no messages: spoken runs cannot be read", path=f"{at}.messages")
    for index, message in enumerate(elements_of(value, f"{at}.messages")):
        place = f"{at}.messages[{index}]"
        for body, spot, is_error in _said(members_of(message, place), place):
            if is_error:
                failed.add(len(messages))
            messages.append(body)
            places.append(spot)
    joined = b"[" + b",".join(messages) + b"]"
    request = request_of(CHAT, {"messages": joined, **tools_member(members, "tools")}, of_list(places, at))
    _mark_failed(request.items, failed)
    relocate(request, of_list(places, at))
    check(request.items, f"{at}.messages")
    return Example(request)


def _mark_failed(items: list[Any], failed: set[int]) -> None:
    wanted = {f"$.messages[{index}]" for index in failed}
    for item in items:
        if isinstance(item, ToolResult) and item.at in wanted:
            item.status = "error"


def _said(message: Mapping[str, Json], at: str) -> Iterator[tuple[bytes, str, bool]]:
    """Give a message as the agent had it, in the spelling of Chat, its place, and whether it is the error of a tool."""
    if "tool_messages" in message:
        for index, one in enumerate(elements_of(message["tool_messages"], f"{at}.tool_messages")):
            yield from _said(members_of(one, f"{at}.tool_messages[{index}]"), f"{at}.tool_messages[{index}]")
        return
    role = text_of_member(message, "role", at)
    if _is(message, "is_audio", b"true"):
        raise BadRow(Code.SHAPE, "a spoken message, which has no text", path=f"{at}.is_audio")
    content = bytes(message.get("content", b"null"))
    if role == "tool":
        if not _is(message, _CALLER, b'"user"'):
            body = b'{"role":"tool","tool_call_id":%s,"content":%s}' % (bytes(member(message, "id", at)), content)
            yield body, at, _is(message, "error", b"true")
        return
    said = [b'"role":%s' % bytes(message["role"]), b'"content":%s' % content]
    calls = list(_calls(message, at))
    if calls:
        said.append(b'"tool_calls":[%s]' % b",".join(calls))
    if calls or content != b"null" or role != "user":
        yield b"{%s}" % b",".join(said), at, False


def _calls(message: Mapping[str, Json], at: str) -> Iterator[bytes]:
    """Give the agent's calls: an object of arguments becomes the string that Chat has, in one spelling."""
    if not has(message, "tool_calls"):
        return
    for index, value in enumerate(elements_of(message["tool_calls"], f"{at}.tool_calls")):
        place = f"{at}.tool_calls[{index}]"
        call = members_of(value, place)
        if _is(call, _CALLER, b'"user"'):
            continue
        value_of(member(call, "arguments", place), f"{place}.arguments")
        arguments = bytes(json_of(arguments_of(call["arguments"])))
        name = bytes(member(call, "name", place))
        function = b'{"name":%s,"arguments":%s}' % (name, arguments)
        yield b'{"id":%s,"type":"function","function":%s}' % (bytes(call.get("id", b'""')), function)


def _is(members: Mapping[str, Json], name: str, value: bytes) -> bool:
    return bytes(members.get(name, b"")) == value


FORMS = (TauBench(),)
