"""Owns what is read of agent sessions: one conversation for each way, nothing mixed, nothing trained twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.datasets.trace_rows import FORMS, fault, lines, read, records, said
from turnscript.core.conversation import Thinking
from turnscript.datasets.form import Example

SIDE = {"isSidechain": True}


def line(uuid: str, parent: str | None, content: Any, **members: Any) -> dict[str, Any]:
    """A line of the user, or of the assistant if its id begins with `a`."""
    role = "assistant" if uuid.startswith("a") else "user"
    message = {"role": role, "content": content, "id": f"msg_{uuid}"} | members.pop("message", {})
    return {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message, **members}


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def attachment(uuid: str | None, parent: str | None, kind: str, **members: Any) -> dict[str, Any]:
    rendered: dict[str, Any] = {name: members.pop(name) for name in ("rendered", "renderedRole") if name in members}
    ids: dict[str, Any] = {"uuid": uuid, "parentUuid": parent} if uuid else {}
    return {"type": "attachment", **ids, "sessionId": "s", "attachment": {"type": kind, **members}, **rendered}


def claude(*found: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(example.label, said(example)) for example in FORMS["claude-code"].read(lines(*found))]


ASKED = [line("u1", None, "Hi"), line("a1", "u1", text("Hello"))]


# Claude Code


def test_the_main_chain_has_all_blocks_of_a_message_and_all_results_of_its_calls() -> None:
    main = read("claude-code.jsonl")[0]
    assert (
        "part 1",
        [
            "user: The branch is main.",
            "user: Compare a.txt and b.txt, please.",
            "user: /repo/notes.md | be brief",
            "(Read both.)",
            "assistant: I read both.",
            'Read({"file_path": "/repo/a.txt", "limit": 1.0}) toolu_1',
            'Read({"file_path": "/repo/b.txt"}) toolu_2',
            "= alpha toolu_1",
            "= no such file toolu_2 error",
            "user: And c.txt!",
            "assistant: b.txt is missing.",
            "user: Let somebody look.",
            'Task({"description": "look", "prompt": "Look.", "subagent_type": "Explore"}) toolu_3',
            "= I looked. toolu_3",
            "assistant: It was looked at.",
        ],
    ) == (main.label, said(main))
    thought = main.request.items[3]
    assert isinstance(thought, Thinking)
    assert ("c2ln", "line 7: $.message.content[0]") == (thought.signature, thought.at)
    shapes = [item.turn for item in main.request.items]
    assert [] == [turn for turn in shapes[4:7] if turn == "new"], "text and calls belong to the message of the thought"
    assert "new" != shapes[8], "both results are one message"


def test_a_way_that_was_given_up_is_an_example_that_trains_only_its_own_part() -> None:
    _, branch, *_ = read("claude-code.jsonl")
    assert "part 1, branch 1" == branch.label
    assert ["-assistant: b.txt is missing.", "user: <image/png> | What is this?", "assistant: A cat."] == said(branch)[
        -3:
    ]
    assert [3, 4, 5, 6, 10] == sorted(branch.context)


def test_a_subagent_has_a_conversation_of_its_own_and_a_compaction_begins_another() -> None:
    *_, sidechain, compacted = read("claude-code.jsonl")
    assert ("sidechain 1", ["user: Look.", "assistant: I looked."]) == (sidechain.label, said(sidechain))
    assert (
        "part 2",
        [
            "user: This session is continued. Summary: files were compared.",
            "user: Let somebody look.",
            '-Task({"description": "look", "prompt": "Look.", "subagent_type": "Explore"}) toolu_3',
            "= I looked. toolu_3",
            "-assistant: It was looked at.",
            "user: <command-name>/model</command-name>",
            "user: Go on.",
            "-assistant: No response requested.",
            "user: Really, go on.",
            "assistant: Done.",
        ],
    ) == (compacted.label, said(compacted))


def test_every_line_is_read_behind_its_parent_in_whatever_order_they_come() -> None:
    found = records("claude-code.jsonl")
    expected = [said(example) for example in read("claude-code.jsonl")]
    moved = [*found[:4], found[10], *found[4:10], *found[11:]]  # a result before its call
    assert expected == [said(example) for example in FORMS["claude-code"].read(lines(*moved))]


def test_messages_that_a_compaction_lists_as_kept_stand_behind_its_anchor() -> None:
    kept = {"anchorUuid": "u2", "uuids": ["u1", "a1", "never-written"]}
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "c",
        "parentUuid": None,
        "compactMetadata": {"preservedMessages": kept, "preservedSegment": {"headUuid": "x"}},
    }
    after = [line("u2", "c", "Summary."), line("u3", "u2", "And?"), line("a3", "u3", text("Yes"))]
    assert [
        ("part 1", ["user: Hi", "assistant: Hello"]),
        ("part 2", ["user: Summary.", "user: Hi", "-assistant: Hello", "user: And?", "assistant: Yes"]),
    ] == claude(*ASKED, boundary, *after)
    boundary["compactMetadata"] = {"preservedMessages": {"anchorUuid": "c", "uuids": ["a1"]}}
    assert ["-assistant: Hello", "user: Summary.", "user: And?", "assistant: Yes"] == claude(*ASKED, boundary, *after)[
        1
    ][1]
    boundary["compactMetadata"] = {"preservedSegment": {"anchorUuid": "u2", "headUuid": "u3", "tailUuid": "a1"}}
    expected = ("E_SHAPE", "line 3: $.compactMetadata.preservedSegment")
    assert expected == fault("claude-code", lines(*ASKED, boundary, *after))


def test_a_question_that_was_asked_anew_before_any_answer_is_no_example() -> None:
    asked = [line("u0", None, "Hi", isMeta=True), line("u1", "u0", "Helo"), line("u2", "u0", "Hello")]
    assert [("", ["user: Hi", "user: Hello", "assistant: Yes"])] == claude(*asked, line("a2", "u2", text("Yes")))


def test_text_between_a_call_and_its_result_stays_behind_the_result() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
    found = [
        line("u1", None, "Hi"),
        line("a1", "u1", [call]),
        line("u2", "a1", "Hurry"),
        line("u3", "u2", [result]),
        line("a2", "u3", text("Done")),
    ]
    assert [("", ["user: Hi", "f({}) t1", "= x t1", "user: Hurry", "assistant: Done"])] == claude(*found)


def test_errors_of_requests_are_no_part_and_words_of_the_client_are_not_trained() -> None:
    failed = line("a2", "a1", text("API Error: 529"), isApiErrorMessage=True)
    made = line("a3", "a2", text("No response requested."), message={"model": "<synthetic>"})
    assert [("", ["user: Hi", "assistant: Hello", "-assistant: No response requested."])] == claude(
        *ASKED, failed, made
    )


def test_a_thought_of_which_only_the_proof_is_there_is_kept_and_not_trained() -> None:
    thought = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    found = [ASKED[0], line("a1", "u1", [thought, *text("Hello")])]
    assert [("", ["user: Hi", "-()", "assistant: Hello"])] == claude(*found)
    reasoning = {"type": "reasoning", "summary": [], "encrypted_content": "Z0FB"}
    (example,) = codex(item(**message("user", "Hi")), item(**reasoning), item(**message("assistant", "Hello")))
    assert ["user: Hi", "-()", "assistant: Hello"] == said(example)


def test_an_agents_own_file_and_the_words_of_a_server_tool_are_read() -> None:
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    found = FORMS["claude-code"].read(
        lines(line("u1", None, "Hi", **SIDE), line("a1", "u1", [block, *text("Yes")], **SIDE))
    )
    assert ["user: Hi", "opaque: ", "assistant: Yes"] == said(found[0])
    assert "" == found[0].label


def test_a_line_of_a_subagent_under_a_line_of_the_main_chain_begins_a_conversation() -> None:
    found = [*ASKED, line("u2", "a1", "Look", **SIDE), line("a2", "u2", text("Seen"), **SIDE)]
    assert [
        ("part 1", ["user: Hi", "assistant: Hello"]),
        ("sidechain 1", ["user: Look", "assistant: Seen"]),
    ] == claude(*found)


def test_what_the_model_was_shown_is_read_as_it_was_rendered() -> None:
    rendered = [{"content": "<system-reminder>"}, {"content": "date: today"}]
    found = [
        line("u1", None, "Hi"),
        attachment("n1", "u1", "date", rendered=rendered, renderedRole="user"),
        attachment("n2", "n1", "never_seen", secret="x"),
        attachment("n3", "n2", "rules", rendered=[{"content": "Be kind."}], renderedRole="system"),
        line("a1", "n3", text("Hello")),
    ]
    expected = ["user: Hi", "user: <system-reminder>", "user: date: today", "system: Be kind.", "assistant: Hello"]
    assert [("", expected)] == claude(*found)


def test_a_snapshot_of_the_prompt_gives_the_instructions_and_the_tools_byte_for_byte() -> None:
    schema = {"type": "object", "properties": {"n": {"default": 1.0}}}
    tools = [{"name": "Bash", "description": "Runs.", "schema": {"name": "Bash", "input_schema": schema}}]
    found = [
        attachment(
            "p1", None, "prompt_snapshot", systemPrompt=["Old."], tools=[*tools, {"name": "P", "schema": schema}]
        ),
        attachment(None, None, "prompt_snapshot", systemPrompt=["You help.", "Be brief."]),
        *ASKED,
    ]
    data = lines(*found).replace(b'"default": 1.0', b'"default":  1.00')
    (example,) = FORMS["claude-code"].read(data)
    assert ["system: You help.", "system: Be brief.", "user: Hi", "assistant: Hello"] == said(example)
    schemas = [bytes(tool.parameters or b"") for tool in example.request.tools]
    assert 2 * [b'{"type": "object", "properties": {"n": {"default":  1.00}}}'] == schemas
    assert "line 2: $.attachment" == example.request.items[0].at


@pytest.mark.parametrize(
    ("kind", "members", "expected"),
    [
        ("queued_command", {"prompt": text("Wait!")}, ["user: Wait!"]),
        ("hook_success", {"content": "", "stdout": "x"}, []),
        ("hook_success", {"content": "Run tests."}, ["user: Run tests."]),
        ("hook_blocking_error", {"blockingError": {"blockingError": "No!", "command": "x"}}, ["user: No!"]),
        ("nested_memory", {"path": "x", "content": {"content": "Use tabs."}}, ["user: Use tabs."]),
        ("nested_memory", {"path": "x"}, []),
        ("invoked_skills", {"skills": [{"name": "a", "content": "A."}, {"content": "B."}]}, ["user: A.", "user: B."]),
        ("mcp_instructions_delta", {"addedBlocks": ["One.", "Two."]}, ["user: One.", "user: Two."]),
        ("file", {"filename": "x", "content": {"type": "file_unchanged"}}, []),
        (
            "file",
            {"filename": "x.png", "content": {"type": "image", "file": {"base64": "aGk=", "type": "image/png"}}},
            ["user: x.png | <image/png>"],
        ),
        ("plan_mode", {"reminderType": "full"}, []),
    ],
)
def test_texts_of_attachments_stand_where_the_model_got_them(kind: str, members: Any, expected: list[str]) -> None:
    found = [line("u1", None, "Hi"), attachment("n", "u1", kind, **members), line("a1", "n", text("Hello"))]
    assert [("", ["user: Hi", *expected, "assistant: Hello"])] == claude(*found)


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ({"type": "replacement", "content": "x"}, ("E_FORM", "line 3: $.type")),
        ({"type": "system", "subtype": "sermon", "uuid": "s", "parentUuid": "a1"}, ("E_FORM", "line 3: $.subtype")),
        (attachment("n", "a1", "riddle", words="x"), ("E_FORM", "line 3: $.attachment.type")),
        (line("u2", "gone", "x"), ("E_SHAPE", "line 3: $.parentUuid")),
        (line("u2", "u2", "x"), ("E_SHAPE", "$")),
        (line("a1", None, "x"), ("E_SHAPE", "line 3: $.uuid")),
        ({"type": "user", "message": {"role": "user", "content": "x"}}, ("E_SHAPE", "line 3: $.uuid")),
        (line("a2", "a1", "x", type="user"), ("E_ROLE", "line 3: $.message.role")),
        (
            line("u2", "a1", [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]),
            ("E_CALL", "line 3: $.message.content[0]"),
        ),
        (
            line("a2", "a1", [{"type": "tool_use", "id": "t", "name": "f", "input": 5}]),
            ("E_SHAPE", "line 3: $.message.content[0].input"),
        ),
    ],
)
def test_lines_that_nobody_knows_or_that_fit_nowhere_are_refused(added: Any, expected: tuple[str, str]) -> None:
    assert expected == fault("claude-code", lines(*ASKED, added))


def test_a_session_in_which_the_model_says_nothing_is_refused() -> None:
    assert ("E_EMPTY", "$") == fault("claude-code", lines(ASKED[0]))
    assert ("E_EMPTY", "$") == fault("claude-code", b"\n\n")
    assert ("E_EMPTY", "$") == fault("codex", lines({"type": "turn_context", "payload": {}}))


def test_lines_that_name_no_parent_go_on_from_the_line_before() -> None:
    found = [{key: value for key, value in one.items() if key != "parentUuid"} for one in ASKED]
    assert claude(*ASKED) == claude(*found)
    assert {1.0} == {FORMS["claude-code"].score(one)[0] for one in found}


def test_a_copy_of_a_line_counts_once() -> None:
    assert claude(*ASKED) == claude(*ASKED, ASKED[1], ASKED[0])


# Codex


def codex(*found: dict[str, Any]) -> list[Example]:
    return FORMS["codex"].read(lines(*found))


def item(**members: Any) -> dict[str, Any]:
    return {"timestamp": "t", "type": "response_item", "payload": members}


def message(role: str, words: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}


def event(**members: Any) -> dict[str, Any]:
    return {"timestamp": "t", "type": "event_msg", "payload": members}


def test_a_rollout_has_thoughts_calls_outputs_and_custom_tools() -> None:
    first = read("codex.jsonl")[0]
    assert [
        "system: You are a coding agent.",
        "system: <permissions>all</permissions>",
        "user: <environment_context>/repo</environment_context>",
        "user: How many files are there?",
        "(**Counting**)",
        'shell({"command":["ls"]}) call_1',
        'local_shell({"command": ["wc", "-l"], "timeout_ms": 1000}) call_2',
        "= a\nb\n call_1",
        "= not found call_2 error",
        "apply_patch(*** Begin Patch\n) call_3",
        "= Done! call_3",
        "assistant: Two.",
        "user: Sing.",
        "assistant: La la.",
    ] == said(first)
    thought = first.request.items[4]
    assert isinstance(thought, Thinking)
    assert ("Z0FB", "line 7: $.payload") == (thought.encrypted, thought.at)
    tool = first.request.tools[0]
    assert b'{"type": "object", "properties": {"id": {"type": "string"}}}' == bytes(tool.parameters or b"")


def test_a_search_for_tools_is_a_call_with_a_result_and_the_tools_that_it_found() -> None:
    searched: Any = {"call_id": "c1", "execution": "client", "status": "completed"}
    read_word: Any = {"type": "function", "name": "read_word", "parameters": {}, "strict": False, "defer_loading": True}
    space = {"type": "namespace", "name": "mcp__words", "description": "Words.", "tools": [read_word]}
    [example] = codex(
        item(**message("user", "Which word?")),
        item(type="tool_search_call", arguments={"query": "word"}, **searched),
        {"timestamp": "t", "type": "token_usage_record", "payload": {"usage": {"input_tokens": 1}}},
        item(type="tool_search_output", tools=[space], **searched),
        item(type="function_call", name="read_word", namespace="mcp__words", arguments="{}", call_id="c2"),
        item(type="function_call_output", call_id="c2", output="tree"),
        item(**message("assistant", "Tree.")),
    )
    kinds = [one.kind for one in example.request.items]
    assert ["user", "tool_call", "tool_result", "tools_change", "tool_call", "tool_result", "assistant"] == kinds
    words = said(example)
    assert ['tool_search({"query": "word"}) c1', "= Loaded: mcp__words__read_word c1"] == words[1:3]
    assert "line 4: $.payload" == example.request.items[3].at


def test_turns_that_were_taken_back_are_an_example_and_are_not_trained_again() -> None:
    _, second, _ = read("codex.jsonl")
    assert "part 2" == second.label
    assert ["-assistant: Two.", "user: Thanks.", "assistant: Any time."] == said(second)[-3:]
    assert not any("La la" in words for words in said(second))


def test_a_compaction_of_a_rollout_begins_a_conversation_with_what_it_left() -> None:
    *_, third = read("codex.jsonl")
    assert [
        "system: You are a coding agent.",
        "user: <environment_context>/repo</environment_context>",
        "user: They counted files.",
        "user: And now?",
        "assistant: Now we rest.",
    ] == said(third)
    older = [
        item(**message("user", "Hi")),
        item(**message("assistant", "Hello")),
        {"type": "compacted", "payload": {"message": "They greeted."}},
        item(**message("user", "Bye")),
        item(**message("assistant", "So long")),
    ]
    assert ["user: They greeted.", "user: Bye", "assistant: So long"] == said(codex(*older)[1])


def test_what_a_compaction_keeps_of_the_model_is_not_trained_again() -> None:
    kept = [message("user", "Hi"), message("assistant", "Hello")]
    found = [
        *[item(**one) for one in kept],
        {"type": "compacted", "payload": {"message": "", "replacement_history": kept}},
        item(**message("user", "Bye")),
        item(**message("assistant", "So long")),
    ]
    assert ["user: Hi", "-assistant: Hello", "user: Bye", "assistant: So long"] == said(codex(*found)[1])
    assert ["user: Hi", "assistant: Hello"] == said(codex(*found[:3])[0])


def test_older_sessions_have_bare_items_and_the_users_instructions() -> None:
    head = {"id": "0", "timestamp": "t", "instructions": "Use tabs.", "git": {}}
    state = {"record_type": "state"}
    turns = [message("user", "Hi"), message("assistant", "Hello")]
    assert ["system: Use tabs.", "user: Hi", "assistant: Hello"] == said(codex(head, state, *turns)[0])
    repeated = message("user", "<user_instructions>\n\nUse tabs.\n\n</user_instructions>")
    assert 3 == len(codex(head, repeated, *turns)[0].request.items)


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ({"type": "secret", "payload": {}}, ("E_FORM", "line 3: $.type")),
        (item(type="hologram"), ("E_FORM", "line 3: $.payload.type")),
        (item(role="user"), ("E_SHAPE", "line 3: $.payload.type")),
        ({"payload": {}}, ("E_SHAPE", "line 3: $.type")),
        (event(type="thread_rolled_back", num_turns=1), ("E_SHAPE", "line 3: $.payload.num_turns")),
        (item(type="function_call_output", call_id="x", output="y"), ("E_CALL", "line 3: $.payload")),
        (item(type="function_call", call_id="x", name="f", arguments="{"), ("E_ARGS", "line 3: $.payload")),
        (item(**message("robot", "x")), ("E_ROLE", "line 3: $.payload.role")),
        (item(type="message", role="user", content=5), ("E_SHAPE", "line 3: $.payload.content")),
    ],
)
def test_lines_that_no_rollout_has_are_refused(added: Any, expected: tuple[str, str]) -> None:
    found = [item(**message("user", "Hi")), item(**message("assistant", "Hello")), added]
    assert expected == fault("codex", lines(*found))


def test_items_that_only_the_api_knows_are_kept() -> None:
    call = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}
    found = codex(item(**message("user", "Hi")), item(**call), item(**message("assistant", "Hello")))
    assert ["user: Hi", "opaque: ", "assistant: Hello"] == said(found[0])
