"""Owns the checklist of what a gateway must do for its clients: of each duty, the tests that hold it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

CHECKLIST: dict[str, list[str]] = {
    # For all.
    "base URLs with and without a version, and a beta query": [
        "gateway/test_e2e_chat.py::test_paths_with_and_without_a_version_are_served_with_either_header",
        "gateway/test_e2e_messages.py::test_clients_of_every_base_url_and_key_are_served",
    ],
    "both headers with a key, on every route": [
        "gateway/test_limits.py::test_a_key_is_needed_and_both_headers_carry_it",
        "gateway/test_limits.py::test_a_key_is_needed_for_everything_that_says_something",
        "gateway/test_paths.py::test_a_key_is_wanted_in_either_header_whatever_is_asked",
        "gateway/test_e2e_chat.py::test_paths_with_and_without_a_version_are_served_with_either_header",
    ],
    "unknown members, queries, headers and betas are passed over": [
        "gateway/test_e2e_chat.py::test_unknown_members_queries_and_headers_are_passed_over",
        "gateway/test_e2e_messages.py::test_unknown_members_and_headers_are_passed_over",
        "gateway/test_e2e_messages.py::test_every_version_and_beta_is_taken",
        "gateway/test_e2e_messages.py::test_beta_calls_of_the_sdk_are_served",
        "gateway/test_e2e_responses.py::test_every_setting_of_codex_is_taken",
        "gateway/test_prefix_law.py::test_every_recorded_request_is_answered",
    ],
    "any model name is taken and told back": [
        "gateway/test_e2e_chat.py::test_models_are_listed_and_any_name_is_one",
        "gateway/test_e2e_chat.py::test_a_whole_answer",
        "gateway/test_e2e_messages.py::test_a_whole_answer",
        "gateway/test_e2e_responses.py::test_a_whole_answer",
    ],
    "a limit beyond the context is made to fit": [
        "gateway/test_e2e_chat.py::test_a_limit_beyond_the_context_is_made_to_fit",
        "gateway/test_asking.py::test_a_server_that_counts_more_tokens_than_were_estimated_is_asked_for_less",
        "gateway/test_asking.py::test_a_prompt_in_token_ids_must_fit_too",
    ],
    "whole answers everywhere": [
        "gateway/test_e2e_tools.py::test_a_program_runs_tools_over_several_turns",
        "gateway/test_e2e_tools.py::test_calls_side_by_side_are_answered_side_by_side",
    ],
    "models in both shapes, one by its name": [
        "gateway/test_e2e_chat.py::test_models_are_listed_and_any_name_is_one",
        "gateway/test_e2e_messages.py::test_models_in_the_shape_of_this_api",
        "gateway/test_e2e_messages.py::test_names_that_are_no_patterns_are_listed_and_all_of_them_are_served",
    ],
    "counting, cheap and many at once": [
        "gateway/test_e2e_messages.py::test_counting_is_cheap_and_agrees_with_the_answer",
        "gateway/test_e2e_responses.py::test_tokens_are_counted_without_an_answer",
        "gateway/test_limits.py::test_many_counts_at_once_are_no_burden",
        "gateway/test_backend_real.py::test_tokens_are_counted_by_the_server",
    ],
    "answers by their id": ["gateway/test_e2e_responses.py::test_an_answer_is_kept_listed_and_forgotten"],
    "a websocket is answered with 426": [
        "gateway/test_e2e_responses.py::test_a_websocket_is_refused_in_the_way_that_clients_take_at_once"
    ],
    "errors in the shape of each API, with a time to wait": [
        "gateway/test_error_table.py::test_every_row_is_the_class_that_it_names",
        "gateway/test_faults_sdks.py::test_an_error_with_a_status_is_its_own_exception",
        "gateway/test_limits.py::test_a_full_queue_refuses_and_a_long_wait_does_too",
        "gateway/test_limits.py::test_the_requests_of_a_key_in_a_minute_are_counted",
        "gateway/test_faults.py::test_a_server_that_has_no_room_says_when_to_come_again_or_the_gateway_does",
    ],
    "malformed requests are bad requests": [
        "gateway/test_asking.py::test_a_request_without_anything_to_answer_is_refused",
        "gateway/test_e2e_chat.py::test_a_malformed_request_is_a_bad_request",
        "gateway/test_e2e_messages.py::test_a_malformed_request_is_a_bad_request",
        "gateway/test_e2e_responses.py::test_a_malformed_request_is_a_bad_request",
        "gateway/test_limits.py::test_a_body_that_is_none_is_a_bad_request",
        "gateway/test_troubled_requests.py::test_messages_of_roles_that_nobody_knows_alone_ask_nothing",
    ],
    "too long a prompt, in the words of each API": [
        "gateway/test_e2e_chat.py::test_too_long_a_prompt_is_told_in_the_words_that_clients_know",
        "gateway/test_e2e_messages.py::test_too_long_a_prompt_is_told_in_the_words_that_clients_know",
        "gateway/test_e2e_responses.py::test_too_long_a_prompt_is_told_in_the_words_that_clients_know",
    ],
    "signs of life while a prompt is read": [
        "gateway/test_alive.py::test_what_waits_gives_signs_of_life_before_the_first_piece_and_between_pieces",
        "gateway/test_alive.py::test_the_sdks_take_signs_of_life_anywhere",
    ],
    "a client that hangs up ends its generation": [
        "gateway/test_alive.py::test_a_client_that_goes_ends_the_generation",
        "gateway/test_alive.py::test_clients_that_are_killed_at_any_point_leave_nothing",
        "gateway/test_counts_alive.py::test_a_client_that_goes_ends_a_count",
        "gateway/test_counts_alive.py::test_a_client_that_goes_while_its_prompt_is_counted_ends_that",
    ],
    # Messages.
    "Messages: instructions in the middle, several users, several texts": [
        "gateway/test_e2e_messages.py::test_instructions_stand_in_the_middle_too"
    ],
    "Messages: results of every form, mixed with text": [
        "gateway/test_e2e_messages.py::test_results_of_every_form_are_read"
    ],
    "Messages: marks for a cache mean nothing, a string is one block": [
        "gateway/test_e2e_messages.py::test_marks_for_a_cache_mean_nothing",
        "gateway/test_prefix_law.py::test_a_session_of_claude_code_only_grows",
    ],
    "Messages: the billing header is dropped": [
        "gateway/test_e2e_messages.py::test_the_billing_header_does_not_reach_the_model",
        "gateway/test_prefix_law.py::test_a_session_of_claude_code_only_grows",
    ],
    "Messages: deferred tools wait until they are named": [
        "gateway/test_e2e_messages.py::test_deferred_tools_stay_out_until_something_names_them",
        "gateway/test_prefix_law.py::test_a_session_of_claude_code_only_grows",
    ],
    "Messages: server tools are not offered, and no error": [
        "gateway/test_e2e_messages.py::test_tools_of_the_vendor_are_not_offered",
        "gateway/test_asking.py::test_a_tool_of_the_vendor_is_one_loss_or_by_policy_a_bad_request_that_names_it",
    ],
    "Messages: threads are refused in the known words": [
        "gateway/test_e2e_messages.py::test_a_thread_is_refused_with_the_word_that_clients_know",
        "gateway/test_e2e_messages.py::test_the_tool_runner_of_the_sdk_which_wants_threads_runs",
    ],
    "Messages: signatures that come back are known": [
        "gateway/test_e2e_thinking.py::test_messages_has_thinking_blocks_with_a_signature",
        "gateway/test_e2e_thinking.py::test_a_thought_that_is_not_to_be_shown_is_in_its_signature",
        "gateway/test_former_keys.py::test_a_thought_that_a_former_key_has_sealed_is_whole_again",
    ],
    "Messages: thoughts of others, redacted ones and display are taken": [
        "gateway/test_e2e_thinking.py::test_thoughts_of_another_server_are_taken",
        "gateway/test_e2e_thinking.py::test_a_thought_whose_proof_was_changed_is_taken_and_reported",
        "gateway/test_foreign.py::test_a_proof_of_another_server_is_one_loss_and_in_no_prompt",
        "gateway/test_efforts.py::test_an_effort_holds_from_where_it_is_said",
    ],
    "Messages: structured output, also as a forced tool": [
        "gateway/test_e2e_messages.py::test_structured_output_is_parsed_by_the_sdk",
        "gateway/test_e2e_messages.py::test_structured_output_comes_as_a_forced_tool",
        "unit/test_anthropic_messages_options.py::test_the_output_format_is_read_where_older_sdks_write_it",
    ],
    "Messages: both versions, with and without sampling": [
        "gateway/test_e2e_messages.py::test_every_version_and_beta_is_taken"
    ],
    # Chat Completions.
    "Chat: every role and form of content": [
        "gateway/test_e2e_chat.py::test_every_role_and_content_is_read",
        "gateway/test_asking.py::test_what_an_sdk_writes_into_a_history_that_says_nothing_is_no_loss",
    ],
    "Chat: thoughts out and back": [
        "gateway/test_e2e_thinking.py::test_chat_has_thoughts_as_reasoning_content",
        "gateway/test_e2e_thinking.py::test_a_thought_goes_to_the_client_and_comes_back_to_the_model",
    ],
    "Chat: parallel calls have an index": ["gateway/test_e2e_chat.py::test_parallel_calls_have_an_index_in_a_stream"],
    "Chat: arguments stay as they were written, by id": [
        "gateway/test_e2e_chat.py::test_arguments_stay_as_they_were_written_by_call_id"
    ],
    "no blank text before a call": [
        "gateway/test_e2e_chat.py::test_no_blank_text_is_told_before_a_call",
        "gateway/test_e2e_messages.py::test_no_blank_text_is_told_before_a_call",
        "gateway/test_e2e_responses.py::test_no_blank_text_is_told_before_a_call",
    ],
    "Chat: tool choice, one call at a time": [
        "gateway/test_e2e_tools.py::test_a_call_that_is_asked_for_is_begun_in_the_prompt",
        "gateway/test_e2e_tools.py::test_where_no_call_is_wanted_none_is_told",
        "gateway/test_e2e_tools.py::test_one_call_at_a_time_if_the_client_wants_it",
    ],
    "Chat: formats of the answer, both limits, stop, n": [
        "gateway/test_e2e_chat.py::test_structured_output_is_parsed_by_the_sdk",
        "gateway/test_e2e_chat.py::test_any_object_may_be_asked_for",
        "gateway/test_e2e_chat.py::test_the_limit_is_a_length",
        "gateway/test_e2e_chat.py::test_a_stop_string_of_the_client_ends_the_text",
        "gateway/test_e2e_chat.py::test_as_many_answers_are_made_as_are_asked_for",
    ],
    # Responses.
    "Responses: tools of every type, those of the vendor not offered": [
        "gateway/test_e2e_responses.py::test_tools_of_the_vendor_are_not_offered",
        "gateway/test_e2e_responses.py::test_a_custom_tool_is_called_with_free_text",
    ],
    "Responses: tools defined in the input": [
        "gateway/test_e2e_responses.py::test_tools_may_be_defined_in_the_input",
        "gateway/test_e2e_responses.py::test_tools_that_a_search_found_are_tools",
    ],
    "Responses: a namespace beside the bare name": [
        "gateway/test_e2e_responses.py::test_a_tool_of_a_namespace_is_called_by_its_bare_name",
        "gateway/test_prefix_law.py::test_a_session_of_codex_only_grows",
    ],
    "Responses: a custom tool is answered with a custom call": [
        "gateway/test_e2e_responses.py::test_a_custom_tool_is_called_with_free_text"
    ],
    "Responses: references and earlier answers are kept, or refused": [
        "gateway/test_e2e_responses.py::test_items_are_named_instead_of_said",
        "gateway/test_e2e_responses.py::test_a_conversation_goes_on_from_an_id",
        "gateway/test_e2e_responses.py::test_going_on_from_what_is_not_there_is_told",
    ],
    "Responses: reasoning with a summary and a seal, back without content": [
        "gateway/test_e2e_thinking.py::test_responses_has_reasoning_items_with_a_summary_and_a_seal",
        "gateway/test_e2e_thinking.py::test_a_seal_is_there_only_where_it_is_asked_for",
        "gateway/test_e2e_thinking.py::test_a_reasoning_item_comes_back_with_nothing_but_its_seal",
        "gateway/test_e2e_thinking.py::test_raw_reasoning_is_content_with_part_events",
    ],
    "Responses: errors in a stream and limits have their own last event": [
        "gateway/test_faults_sdks.py::test_a_response_that_breaks_off_is_told_to_have_failed",
        "gateway/test_e2e_responses.py::test_the_limit_is_an_incomplete_answer",
    ],
    "Responses: compaction is a normal request, or one item that only the server reads": [
        "gateway/test_e2e_responses.py::test_a_summary_is_an_ordinary_request",
        "gateway/test_e2e_compaction.py::test_a_wish_at_the_end_gives_one_item_with_the_summary",
        "gateway/test_e2e_compaction.py::test_a_conversation_goes_on_from_its_summary",
        "gateway/test_foreign.py::test_what_only_another_server_can_do_is_a_loss",
        "gateway/test_prefix_law.py::test_a_session_of_codex_only_grows",
    ],
    "Responses: every setting is taken": [
        "gateway/test_e2e_responses.py::test_every_setting_of_codex_is_taken",
        "gateway/test_e2e_responses.py::test_structured_output_is_parsed_by_the_sdk",
    ],
}
"""What to do, in our words, and where it is held."""


@cache
def names_in(file: str) -> frozenset[str]:
    """The tests of a file, without running it."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("duty", CHECKLIST)
def test_every_duty_is_held_by_tests_that_exist(duty: str) -> None:
    held = [name.split("::") for name in CHECKLIST[duty]]
    assert held
    assert [] == [f"{file}::{test}" for file, test in held if test not in names_in(file)]
    assert all(test.startswith("test_") for _, test in held)
