"""Owns what is read of traces that are one record each: every turn, call, result, thought and schema, in its order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.datasets.trace_rows import FOLDER, FORMS, fault, form_of, read, records, rows, said
from turnscript.core.conversation import Thinking, ToolResult
from turnscript.datasets.files import sample
from turnscript.datasets.form import Example
from turnscript.datasets.form_detection import detect_form

AGENT, CUSTOMER = ({"requestor": who} for who in ("assistant", "user"))  # codespell:ignore requestor
DEPTH = 'depth_for_lakes({\n  "lake": "Bled"\n})'


def one(form: str, row: Any) -> Example:
    (example,) = FORMS[form].read(json.dumps(row).encode())
    return example


# tau-bench


def test_a_tau_bench_run_keeps_every_turn_call_and_result_in_its_order() -> None:
    first, second = read("tau-bench.json")
    assert [
        "system: # Library policy\n- Confirm the member before any change.",
        "user: I want to extend a loan.",
        "assistant: Gladly. What is your member number?",
        "user: It is m_17.",
        "assistant: Let me look you up.",
        'find_member({"member": "m_17"}) call_a1',
        '= {"name": "Ada", "loans": ["b_3"]} call_a1',
        'extend_loan({"book":"b_3","days":14.0}) call_a2',
        "notify({}) call_a3",
        "= Error: already extended call_a2",
        "= ok call_a3",
        "assistant: It was extended before.",
        "assistant: Is there anything else?",
        "user: ###STOP###",
    ] == said(first)
    assert "= Transfer successful call_b1" == said(second)[-1]
    assert "$.traj[6].tool_calls[1]" == first.request.items[8].at


def test_tools_beside_a_tau_bench_run_keep_their_bytes() -> None:
    schema = '{"type": "object", "properties": {"n": {"default": 1.0, "type":"number"}}}'
    tools = f'[{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}]'
    run = '"traj":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"}]'
    for spelled in (tools, json.dumps(tools)):
        (example,) = FORMS["tau-bench"].read(b'{"task_id":1,%s,"tools":%s}' % (run.encode(), spelled.encode()))
        assert schema == bytes(example.request.tools[0].parameters or b"").decode()


def tau2(*messages: Any, **members: Any) -> dict[str, Any]:
    return {"id": "s", "task_id": "t", "termination_reason": "user_stop", "messages": list(messages), **members}


def test_a_tau2_run_is_the_agents_side_of_it() -> None:
    call = {"id": "c1", "name": "toggle", "arguments": {"on": True, "at": 1.0}, **AGENT}
    own = {"id": "u1", "name": "look_at_phone", "arguments": {}, **CUSTOMER}
    run = tau2(
        {"role": "assistant", "content": "Hi!", "tool_calls": None, "turn_idx": 0, "cost": 0.1},
        {"role": "user", "content": None, "tool_calls": [own]},
        {"role": "tool", "id": "u1", "content": "no bars", **CUSTOMER, "error": False},
        {"role": "user", "content": "No signal.", "tool_calls": None},
        {"role": "assistant", "content": "Wait.", "tool_calls": [call, {**call, "id": "c2"}]},
        {
            "role": "tool",
            "tool_messages": [
                {"role": "tool", "id": "c1", "content": "done", **AGENT, "error": False},
                {"role": "tool", "id": "c2", "content": "Error: no", **AGENT, "error": True},
            ],
        },
        policy="Be kind.",
    )
    expected = [
        "system: Be kind.",
        "assistant: Hi!",
        "user: No signal.",
        "assistant: Wait.",
        'toggle({"on": true, "at": 1.0}) c1',
        'toggle({"on": true, "at": 1.0}) c2',
        "= done c1",
        "= Error: no c2 error",
    ]
    assert expected == said(one("tau-bench", run))
    file = {
        "tasks": [],
        "info": {"environment_info": {"policy": "Be kind."}},
        "simulations": [run, tau2(*run["messages"])],
    }
    examples = FORMS["tau-bench"].read(json.dumps(file).encode())
    assert [("run 1", expected), ("run 2", expected)] == [(example.label, said(example)) for example in examples]
    assert "$.simulations[1].messages[5].tool_messages[1]" == examples[1].request.items[-1].at


def test_runs_without_a_conversation_are_refused() -> None:
    failed = {"task_id": 1, "reward": 0.0, "info": {"error": "timeout"}, "traj": [], "trial": 0}
    assert ("E_EMPTY", "$.traj") == fault("tau-bench", failed)
    assert ("E_EMPTY", "$.messages") == fault("tau-bench", tau2() | {"messages": None})
    assert ("E_SHAPE", "$.messages[0].is_audio") == fault("tau-bench", tau2({"role": "user", "is_audio": True}))


# SWE-agent


def test_a_swe_agent_history_keeps_thoughts_calls_and_observations() -> None:
    (example,) = read("swe-agent.traj")
    assert [
        "system: You fix bugs.",
        "user: Here is a demonstration: ...",
        "user: Fix issue 3.",
        "(Files first.)",
        "assistant: I will look around.",
        'bash({"command":"ls"}) call_1',
        "= src\n call_1",
        "assistant: ",
        "submit({}) call_2",
        "= diff --git a/x b/x call_2",
    ] == said(example)
    thought = example.request.items[3]
    assert isinstance(thought, Thinking)
    assert ("c2ln", "$.history[3].thinking_blocks[0]") == (thought.signature, thought.at)


def test_a_demonstration_is_context_and_each_agent_has_its_own_conversation() -> None:
    history = [
        {"role": "user", "content": "Show", "agent": "primary", "is_demo": True},
        {"role": "assistant", "content": "ls", "agent": "primary", "is_demo": True},
        {"role": "user", "content": "Fix", "agent": "primary"},
        {"role": "user", "content": "Help", "agent": "second"},
        {"role": "assistant", "content": "cat x", "agent": "primary"},
        {"role": "assistant", "content": "No.", "agent": "second"},
    ]
    examples = FORMS["swe-agent"].read(json.dumps({"history": history, "trajectory": []}).encode())
    assert [
        ("agent primary", ["user: Show", "-assistant: ls", "user: Fix", "assistant: cat x"]),
        ("agent second", ["user: Help", "assistant: No."]),
    ] == [(example.label, said(example)) for example in examples]


def test_a_thought_before_a_call_alone_belongs_to_the_same_message() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    blocks = [{"type": "redacted_thinking", "data": "eA=="}, {"type": "thinking", "thinking": "so"}]
    history = [
        {"role": "assistant", "content": "Hm.", "agent": "main"},
        {"role": "assistant", "content": None, "agent": "main", "tool_calls": [call], "thinking_blocks": blocks},
    ]
    items = one("swe-agent", {"history": history}).request.items
    assert ["", "join", ""] == [item.turn for item in items[1:]]
    assert "eA==" == getattr(items[1], "redacted", None)


def test_a_result_of_several_calls_is_refused() -> None:
    message = {"role": "tool", "content": "x", "agent": "main", "tool_call_ids": ["1", "2"]}
    assert ("E_CALL", "$.history[0].tool_call_ids") == fault("swe-agent", {"history": [message]})


# ToolBench


def test_a_toolbench_answer_gives_each_way_once_and_trains_what_they_share_once() -> None:
    examples = read("toolbench.json")
    ask = ["system: You can use tools.\nTask description: answer.", "user: \nHow deep is the lake?\nBegin!\n"]
    found = '= {"error": "", "response": "30.6 m"} depth_for_lakes'
    finish = 'Finish({\n  "return_type": "give_answer",\n  "final_answer": "30.6 m"\n})'
    assert [
        ("path 1", [*ask, DEPTH, found, "assistant: I know enough.", finish]),
        ("path 2", [*ask, f"-{DEPTH}", found, finish]),
    ] == [(example.label, said(example)) for example in examples]
    (row,) = rows(form_of("toolbench.json"), records("toolbench.json"))
    assert bytes(examples[0].request.tools[0].parameters or b"") in row


def test_toolbench_conversations_have_their_calls_results_and_tools() -> None:
    (example,) = read("toolbench.jsonl")
    assert [
        DEPTH,
        '= {"error": "", "response": "30.6 m"} depth_for_lakes',
        "assistant: I know enough.",
        'Finish({"return_type": "give_answer", "final_answer": "Action: none"})',
    ] == said(example)[2:]
    assert said(example)[0].startswith("system: You can use tools. Your output should follow this format:")
    assert ["depth_for_lakes", "Finish"] == [tool.name for tool in example.request.tools]
    assert b'"optional":null,"strict":true' in bytes(example.request.tools[1].parameters or b"")


def test_a_toolbench_list_of_tools_in_json_keeps_its_bytes() -> None:
    listed = '[{"name": "f", "parameters": {"type": "object", "n": 1.50}}]'
    turns = [
        {"from": "system", "value": f"You have access to the following APIs: {listed}"},
        {"from": "assistant", "value": "\nThought: go\nAction: f\nAction Input: {}\nEnd Action"},
    ]
    example = one("toolbench", {"conversations": turns})
    assert '{"type": "object", "n": 1.50}' == bytes(example.request.tools[0].parameters or b"").decode()
    assert ["assistant: go", "f({})"] == said(example)[1:]


def test_a_toolbench_answer_that_was_not_found_is_refused() -> None:
    row = {"answer_generation": {"valid_data": False, "function": [], "query": "?"}, "tree": {}}
    assert ("E_EMPTY", "$.answer_generation.train_messages") == fault("toolbench", row)
    turns = [{"from": "assistant", "value": "Action: f\nAction Input: {"}]
    assert ("E_ARGS", "$.conversations[0].value") == fault("toolbench", {"conversations": turns})
    turns = [{"from": "system", "value": "the following APIs: [{'name': open}]"}]
    assert ("E_SHAPE", "$.conversations[0].value") == fault("toolbench", {"conversations": turns})


# Open Assistant


def test_every_way_to_a_leaf_of_an_oasst_tree_is_an_example_with_its_ranks() -> None:
    expected = [
        ("path 1, ranks 0, 0", ["Why is the sky blue?", "Because of scattering.", "Which one?", "Rayleigh's."]),
        ("path 2, ranks 0, 1", ["Why is the sky blue?", "Because of scattering.", "Which one?", "Ask a friend."]),
        ("path 3, ranks 1", ["Why is the sky blue?", "It reflects the sea.", "No!"]),
        ("", ["Hi", "Hello!"]),
        ("path 1, ranks 0", ["Hi", "Hello!"]),
        ("path 2, ranks 1", ["Hi", "Yo."]),
        ("", ["Why?", "Because."]),
    ]
    examples = read("oasst.jsonl")
    assert expected == [(example.label, [line.split(": ", 1)[1] for line in said(example)]) for example in examples]
    assert "$.prompt.replies[0].replies[0].replies[1]" == examples[1].request.items[-1].at


def test_single_oasst_messages_are_joined_in_whatever_order_they_come() -> None:
    expected = [
        ("tree m1 path 1, ranks 0, 0", ["line 2: $", "line 3: $", "line 5: $", "line 1: $"]),
        ("tree m1 path 2, ranks 1", ["line 2: $", "line 4: $"]),
        ("tree n1", ["line 6: $", "line 7: $"]),
    ]
    examples = read("oasst-messages.jsonl")
    assert expected == [(example.label, [item.at for item in example.request.items]) for example in examples]


def test_a_tree_whose_rows_look_like_messages_is_a_tree_and_no_message() -> None:
    """As single messages, only what was asked would be read of it."""
    for tree in records("oasst.jsonl")[-2:]:
        assert ("E_FORM", "line 1: $") == fault("oasst-messages", tree)
    assert ("E_FORM", "$.text") == fault("oasst", {**records("oasst.jsonl")[-1], "text": "another"})
    row = records("oasst.jsonl")[-1]
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
    assert ["user: Why?", "assistant: Because."] == said(one("oasst", {**row, "messages": turns}))
    assert ("E_FORM", "$.messages") == fault("oasst", {**row, "messages": turns[::-1]})
    assert "oasst" == detect_form(sample(str(FOLDER / "oasst.jsonl")), "oasst.jsonl").form


def test_a_rank_may_be_spelled_as_tables_spell_it() -> None:
    prompt = {"message_id": "a", "text": "?", "role": "prompter"}
    reply = {"message_id": "b", "text": "!", "role": "assistant", "rank": 1.0}
    row = {"prompt": {**prompt, "rank": None, "replies": [reply]}}
    (example,) = form_of("oasst.jsonl").read(json.dumps(row).encode())
    assert example.label == "path 1, ranks 1"
    reply["rank"] = 0.5
    assert ("E_SHAPE", "$.prompt.replies[0].rank") == fault("oasst", row)


def test_what_reviewers_refused_is_left_out_and_an_oasst_tree_of_nothing_else_is_refused() -> None:
    prompt = {"message_id": "a", "text": "?", "role": "prompter", "review_result": False, "replies": []}
    assert ("E_EMPTY", "$.prompt") == fault("oasst", {"message_tree_id": "a", "prompt": prompt})
    reply = {"message_id": "b", "text": "spam", "role": "assistant", "review_result": False}
    row = {"prompt": {**prompt, "review_result": None, "replies": [reply]}}
    assert ["user: ?"] == said(one("oasst", row))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"parent_id": "gone"}, ("E_SHAPE", "line 1: $.parent_id")),
        ({"parent_id": "m5"}, ("E_SHAPE", "$")),
        ({"message_id": "m1"}, ("E_SHAPE", "line 2: $.message_id")),
        ({"role": "system"}, ("E_ROLE", "line 1: $.role")),
    ],
)
def test_oasst_messages_that_make_no_tree_are_refused(changes: dict[str, Any], expected: tuple[str, str]) -> None:
    found = records("oasst-messages.jsonl")
    (row,) = rows(FORMS["oasst-messages"], [found[0] | changes, *found[1:]])
    assert expected == fault("oasst-messages", row)


# Taskmaster


def test_taskmaster_speakers_need_not_alternate_and_calls_follow_what_was_said() -> None:
    first, second, third = read("taskmaster.json")
    assert [
        "user: Hi, I need flowers.",
        "user: For tonight, roses.",
        "assistant: One moment.",
        "assistant: Red or white?",
        "user: Red, um, yes.",
    ] == said(first)
    assert [
        "user: Is Joker on in Oakland?",
        'find_theaters({"location": "Oakland", "num": 2.0})',
        '= {"name.theater": ["Grand Lake"]} find_theaters',
        "check({})",
        '= {"status": "available"} check',
        "assistant: Yes, at the Grand Lake.",
    ] == said(second)
    assert [
        "user: one latte please",
        "get_menu({})",
        '= {"items":["latte-7"]} get_menu',
        'order({"item": "latte-7","quantity": "1"})',
        '= {"success":true} order',
        "assistant: Done.",
    ] == said(third)


def test_notes_and_speakers_that_taskmaster_does_not_have_are_refused() -> None:
    turn = {"index": 0, "speaker": "USER", "text": "Hi"}
    assert ("E_ROLE", "$.utterances[0].speaker") == fault("taskmaster", {"utterances": [turn | {"speaker": "BOT"}]})
    note = {"name": "request", "value": "{}", "context": "api_call_0"}
    assert ("E_CALL", "$.utterances[0].annotations[0]") == fault(
        "taskmaster", {"utterances": [turn | {"annotations": [note]}]}
    )
    assert ("E_SHAPE", "$.utterances[0].annotations[0].name") == fault(
        "taskmaster", {"utterances": [turn | {"annotations": [note | {"name": "thought"}]}]}
    )


# BFCL


def test_bfcl_questions_come_with_their_functions_and_the_first_right_answer() -> None:
    examples = read("bfcl.jsonl")
    assert [
        "system: Use the functions.",
        "user: Square 3.",
        'math.power({"base":3.0,"options":{"mod":7,"names":["a","b"]}})',
        'math.power({"base":4})',
    ] == said(examples[0])
    assert ["user: Square 5."] == said(examples[1])
    assert ["user: List the files.", 'ls({"a":true})', "user: Go to work.", 'cd({"folder":"work"})', "ls({})"] == said(
        examples[2]
    )
    assert ["user: How old am I?", "assistant: 35"] == said(examples[3])
    assert "$.ground_truth[2][1]" == examples[2].request.items[-1].at
    row = next(rows(form_of("bfcl.jsonl"), records("bfcl.jsonl")))
    schema = bytes(examples[0].request.tools[0].parameters or b"")
    assert schema.startswith(b'{"type": "dict"')
    assert schema in row


def test_older_bfcl_questions_are_one_turn_or_one_text() -> None:
    function = {"name": "f", "parameters": {"type": "dict", "properties": {}}}
    for question in (
        "Square 3.",
        [{"role": "user", "content": "Square 3."}],
        [[{"role": "user", "content": "Square 3."}]],
    ):
        example = one("bfcl", {"id": "a", "question": question, "function": function})
        assert (["user: Square 3."], ["f"]) == (said(example), [tool.name for tool in example.request.tools])
    assert [] == one("bfcl", {"question": "Square 3.", "function": ""}).request.tools


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        ([["ls(1)"]], ("E_ARGS", "$.ground_truth[0][0]")),
        ([["ls(a=b)"]], ("E_ARGS", "$.ground_truth[0][0]")),
        ([["ls(**{})"]], ("E_ARGS", "$.ground_truth[0][0]")),
        ([["ls(a=1)"], []], ("E_SHAPE", "$.ground_truth")),
        ([{"f": {}, "g": {}}], ("E_CALL", "$.ground_truth[0]")),
        ([{"f": {"a": 1}}], ("E_SHAPE", "$.ground_truth[0].f.a")),
    ],
)
def test_answers_that_are_no_calls_are_refused(truth: Any, expected: tuple[str, str]) -> None:
    row = {"id": "a", "question": [[{"role": "user", "content": "?"}]], "function": [], "ground_truth": truth}
    assert expected == fault("bfcl", row)


# All of them


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "robot", "content": "x"}], ("E_ROLE", "$.traj[0].role")),
        ([{"role": "assistant", "content": None}], ("E_SHAPE", "$.traj[0].content")),
        ([{"role": "user", "content": ""}], ("E_EMPTY", "$.traj")),
        ([{"role": "tool", "tool_call_id": "1", "content": "x"}], ("E_CALL", "$.traj[0]")),
        ([{"role": "user", "content": 5}], ("E_SHAPE", "$.traj[0].content")),
    ],
)
def test_conversations_that_make_no_sense_are_refused_with_the_place_in_the_row(
    messages: Any, expected: tuple[str, str]
) -> None:
    assert expected == fault("tau-bench", {"task_id": 1, "traj": messages})


def test_an_id_may_come_again_once_its_call_was_answered_and_not_before() -> None:
    def call(arguments: str) -> dict[str, Any]:
        function = {"name": "f", "arguments": arguments}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        }

    result = {"role": "tool", "tool_call_id": "1", "content": "x"}
    example = one("tau-bench", {"task_id": 1, "traj": [call("{}"), result, call(""), result]})
    assert ["f({}) 1", "= x 1", "f({}) 1", "= x 1"] == said(example)
    assert 2 == sum(isinstance(item, ToolResult) for item in example.request.items)
    twice = {"task_id": 1, "traj": [call("{}"), call("{}")]}
    assert ("E_CALL", "$.traj[1].tool_calls[0]") == fault("tau-bench", twice)
    assert ("E_ARGS", "$.traj[0].tool_calls[0]") == fault("tau-bench", {"task_id": 1, "traj": [call("[]")]})
