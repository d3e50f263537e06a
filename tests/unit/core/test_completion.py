"""What is kept of an answer, streamed or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.dialects.answers import Answer, Usage
from proxy.core.dialects.chat.completion import StreamCollector, read_completion
from proxy.core.dialects.chat.usage import summed
from proxy.core.dialects.registry import CHAT
from proxy.core.formats.sse import Decoder
from proxy.errors import UpstreamTruncated

DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(
    delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0, **rest: Any
) -> bytes:
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return event({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **rest})


def collected(*parts: bytes) -> StreamCollector:
    collector = StreamCollector()
    for part in parts:
        collector.feed(part)
    return collector


def message(*parts: bytes) -> Any:
    kept = collected(*parts).answer().message
    assert kept is not None
    return json.loads(kept)


def call(
    index: int | None, arguments: str, call_id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    whole = {"index": index, "id": call_id, "type": "function" if call_id else None, "function": function}
    return {key: value for key, value in whole.items() if value is not None}


def calls(kept: dict[str, Any]) -> tuple[str, str, str]:
    return kept.get("id", ""), kept["function"]["name"], kept["function"]["arguments"]


def test_deltas_become_one_message_with_its_members_in_order() -> None:
    parts = [
        chunk({"content": "Hel", "role": "assistant"}),
        chunk({"content": "lo"}),
        chunk(finish="stop"),
        DONE,
    ]
    assert collected(*parts).answer() == Answer(
        message=b'{"role":"assistant","content":"Hello"}',
        finish_reason="stop",
        complete=True,
        choices=1,
        id="c1",
        model="m",
    )


def test_interleaved_parallel_calls_are_told_apart_by_index() -> None:
    kept = message(
        chunk({"role": "assistant", "content": None, "tool_calls": [call(0, "", "a", "f")]}),
        chunk({"tool_calls": [call(1, "", "b", "g")]}),
        chunk({"tool_calls": [call(1, '{"y"'), call(0, '{"x"')]}),
        chunk({"tool_calls": [call(0, ":1}")]}),
        chunk({"tool_calls": [call(1, ":2}")]}, "tool_calls"),
    )
    assert kept == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": '{"y":2}'}},
        ],
    }


def test_calls_without_an_index_are_told_apart_by_id_then_by_order() -> None:
    kept = message(
        chunk({"tool_calls": [call(None, "1", "a", "f"), call(None, "2", "b", "g")]}),
        chunk({"tool_calls": [call(None, "1", "a")]}),
        chunk({"tool_calls": [call(None, "2", "b")]}),
        chunk({"tool_calls": [call(None, "2")]}),
    )
    assert [(c["id"], c["function"]["arguments"]) for c in kept["tool_calls"]] == [("a", "11"), ("b", "222")]


def test_a_new_id_under_a_known_index_is_another_call() -> None:
    kept = message(
        chunk({"tool_calls": [call(0, "1", "a", "f")]}), chunk({"tool_calls": [call(0, "2", "b", "f")]})
    )
    assert [c["id"] for c in kept["tool_calls"]] == ["a", "b"]


def test_a_new_id_without_a_name_goes_on_with_the_call_of_its_index() -> None:
    """As Poolside and mlx-openai-server stream a call: the pieces of its arguments have another id."""
    parts = [call(0, "", "a", "f"), call(0, '{"x"', "b"), call(0, ":1}", "b"), call(1, "{}", "c", "g")]
    answer = collected(
        *[chunk({"tool_calls": [part]}) for part in parts], chunk(finish="tool_calls")
    ).answer()
    assert [calls(part) for part in json.loads(answer.message or b"")["tool_calls"]] == [
        ("a", "f", '{"x":1}'),
        ("c", "g", "{}"),
    ]
    assert answer.complete


def test_pieces_of_calls_with_one_index_are_told_apart_by_their_ids() -> None:
    parts = [call(0, "", "a", "f"), call(0, "", "b", "f"), call(0, "1", "a"), call(0, "2", "b")]
    kept = message(*[chunk({"tool_calls": [part]}) for part in parts])
    assert [calls(each) for each in kept["tool_calls"]] == [("a", "f", "1"), ("b", "f", "2")]


@pytest.mark.parametrize("second", ["f", "g"])
@pytest.mark.parametrize("together", [True, False])
def test_a_name_after_whole_arguments_begins_another_call(second: str, together: bool) -> None:
    """As Gemini's API did at first: each parallel call is whole, with the index 0 and an empty id."""
    whole = [call(0, '{"x":1}', "", "f"), call(0, '{"x":{}}', "", second), call(0, "{}", "", "f")]
    deltas = [whole] if together else [[each] for each in whole]
    kept = message(*[chunk({"tool_calls": delta}) for delta in deltas])
    assert [calls(each)[1:] for each in kept["tool_calls"]] == [
        ("f", '{"x":1}'),
        (second, '{"x":{}}'),
        ("f", "{}"),
    ]


@pytest.mark.parametrize("call_id", ["a", "", None])
@pytest.mark.parametrize("last", ["", " ", "\n"])
def test_a_name_that_every_delta_repeats_goes_on_with_its_call(call_id: str | None, last: str) -> None:
    pieces = ["", '{"x":', "{}", ', "y": 1}', last]
    repeated = [call(0, piece, call_id, "f") for piece in pieces]
    kept = message(*[chunk({"tool_calls": [each]}) for each in repeated])
    assert [calls(each)[1:] for each in kept["tool_calls"]] == [("f", "".join(pieces))]


def test_a_name_that_comes_after_whole_arguments_is_that_of_their_call() -> None:
    kept = message(*[chunk({"tool_calls": [each]}) for each in (call(0, "{}", "a"), call(0, "", None, "f"))])
    assert [calls(each) for each in kept["tool_calls"]] == [("a", "f", "{}")]


def test_a_name_in_pieces_is_that_of_one_call() -> None:
    pieces = [call(0, "", "", "look"), call(0, "", "", "_up"), call(0, "{}")]
    kept = message(*[chunk({"tool_calls": [each]}) for each in pieces])
    assert [calls(each) for each in kept["tool_calls"]] == [("", "look_up", "{}")]


def test_an_id_and_a_name_that_every_delta_repeats_are_said_once() -> None:
    kept = message(*[chunk({"tool_calls": [call(0, part, "a", "f")]}) for part in "xyz"])
    assert kept["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "xyz"}}
    ]


def test_other_members_of_a_call_are_kept() -> None:
    signed = call(0, "{}", "a", "f") | {"extra_content": {"google": {"thought_signature": "s"}}}
    assert (
        message(chunk({"tool_calls": [signed]}))["tool_calls"][0]["extra_content"] == signed["extra_content"]
    )


def test_custom_tools_and_the_old_function_call_are_merged() -> None:
    custom = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
    kept = message(
        chunk({"tool_calls": [custom]}), chunk({"tool_calls": [{"index": 0, "custom": {"input": "y"}}]})
    )
    assert kept["tool_calls"] == [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "xy"}}]
    parts = [
        chunk({"function_call": {"name": "f", "arguments": "{"}}),
        chunk({"function_call": {"arguments": "}"}}),
    ]
    assert message(*parts)["function_call"] == {"name": "f", "arguments": "{}"}
    assert collected(*parts).answer().tool_calls


def test_reasoning_refusal_and_unknown_members_are_kept() -> None:
    kept = message(
        chunk(
            {"content": "", "reasoning_content": "a", "refusal": "No", "details": [1], "n": 1, "future": "x"}
        ),
        chunk({"reasoning_content": "b", "refusal": ".", "details": [2], "n": 2, "future": "y"}),
    )
    assert kept == {
        "role": "assistant",
        "content": None,
        "refusal": "No.",
        "reasoning_content": "ab",
        "details": [1, 2],
        "n": 2,
        "future": "xy",
    }


def test_objects_are_merged_and_said_once_where_they_are_repeated_word_for_word() -> None:
    kept = message(
        chunk({"audio": {"id": "a", "transcript": "Hel"}, "signed": {"by": "x"}}),
        chunk({"audio": {"transcript": "lo", "expires_at": 5}, "signed": {"by": "x"}}),
    )
    assert kept["audio"] == {"id": "a", "transcript": "Hello", "expires_at": 5}
    assert kept["signed"] == {"by": "x"}


def thought(text: str, signature: str | None = None) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


HIDDEN = {"type": "redacted_thinking", "data": "EmwK"}


@pytest.mark.parametrize("ending", [None, ""])
def test_pieces_of_signed_thinking_go_on_with_one_another_until_the_signature(ending: str | None) -> None:
    """As LiteLLM streams them: no index, the signature behind the last words."""
    pieces = [thought("One ", ending), thought("thought.", ending), thought("", "EqoB"), HIDDEN, HIDDEN]
    pieces += [thought("Ano", ending), thought("ther.", ending), thought("", "EqoC")]
    whole = [thought("One thought.", "EqoB"), HIDDEN, HIDDEN, thought("Another.", "EqoC")]
    parts = [chunk({"thinking_blocks": [piece]}) for piece in pieces]
    assert message(*parts, chunk({"content": "So."})) == {
        "role": "assistant",
        "content": "So.",
        "thinking_blocks": whole,
    }
    nested = [chunk({"provider_specific_fields": {"thinking_blocks": [piece]}}) for piece in pieces]
    assert message(*nested)["provider_specific_fields"] == {"thinking_blocks": whole}


def test_pieces_of_reasoning_details_are_put_together_by_their_index() -> None:
    """As OpenRouter streams them."""
    kind = {"type": "reasoning.text", "format": "anthropic-claude-v1"}
    encrypted = {"type": "reasoning.encrypted", "data": "gAAA", "format": "openai-responses-v1"}
    pieces: list[dict[str, Any]] = [
        {**kind, "text": "One ", "index": 0, "id": None},
        {**kind, "text": "Ano", "index": 1, "id": "r1"},
        {**kind, "text": "thought.", "index": 0},
        {**kind, "text": "ther.", "index": 1, "id": None},
        {**kind, "signature": "EqoB", "index": 0},
        {**encrypted, "index": 2, "id": "r2"},
        {**encrypted, "index": 2, "id": "r3"},
    ]
    assert message(*(chunk({"reasoning_details": [piece]}) for piece in pieces))["reasoning_details"] == [
        {**kind, "text": "One thought.", "index": 0, "signature": "EqoB"},
        {**kind, "text": "Another.", "index": 1, "id": "r1"},
        {**encrypted, "index": 2, "id": "r2"},
        {**encrypted, "index": 2, "id": "r3"},
    ]


@pytest.mark.parametrize("name", ["thinking_blocks", "reasoning_details"])
@pytest.mark.parametrize("odd", ["none", 1, {"type": "thinking"}, [1], ["x", None]])
def test_blocks_that_are_none_cost_only_themselves(name: str, odd: object) -> None:
    parts = [chunk({name: [thought("So.", "EqoB")]}), chunk({name: odd}), chunk({"content": "Yes."})]
    assert message(*parts) == {"role": "assistant", "content": "Yes.", name: [thought("So.", "EqoB")]}
    assert message(*parts[1:])["content"] == "Yes."


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_a_content_of_parts_is_put_together_from_its_pieces() -> None:
    """As Mistral's reasoning models answer: thinking in parts, and most of the text as ever."""
    source: list[dict[str, Any]] = [{"type": "reference", "reference_ids": [number]} for number in (1, 2)]
    contents: list[Any] = ["", [{"type": "thinking", "thinking": [text("I ")]}]]
    contents += [[{"type": "thinking", "thinking": [text("see.")]}], "It ", "is.", source[:1], source[1:]]
    contents += [[text("So ")], "be it."]
    answer = collected(*(chunk({"content": each}) for each in contents), chunk(finish="stop")).answer()
    whole = [
        {"type": "thinking", "thinking": [text("I "), text("see.")]},
        text("It is."),
        *source,
        text("So be it."),
    ]
    assert json.loads(answer.message or b"") == {"role": "assistant", "content": whole}
    assert answer.complete
    body = {"choices": [{"message": {"role": "assistant", "content": whole}, "finish_reason": "stop"}]}
    assert read_completion(json.dumps(body).encode()).complete


@pytest.mark.parametrize("odd", [[], ["said"], [1], [{"text": "said"}], [None], {"type": "text"}])
def test_parts_of_a_content_that_are_none_cost_only_themselves(odd: object) -> None:
    parts = [chunk({"content": [text("Yes.")]}), chunk({"content": odd}), chunk(finish="stop")]
    assert message(*parts)["content"] == [text("Yes.")]
    assert not collected(*parts).answer().complete


def test_lists_are_joined_without_a_gap_where_one_is_empty() -> None:
    chunk_of = b'data: {"choices": [{"delta": {"details": %s}}]}\n\n'
    parts = [chunk_of % part for part in (b"[ ]", b"[1 ]", b"[]", b"[2]")]
    assert message(*parts)["details"] == [1, 2]


def test_an_answer_that_says_nothing_has_an_empty_content_however_it_came() -> None:
    silent = b'{"role":"assistant","content":null,"refusal":""}'
    whole = read_completion(b'{"choices":[{"message":%b,"finish_reason":"stop"}]}' % silent).message
    streamed = collected(b'data: {"choices": [{"delta": %b}]}\n\n' % silent).answer().message
    assert whole == streamed == silent.replace(b"null", b'""')
    written = b'{"role": "assistant", "content": "", "a" : 1}'
    assert read_completion(b'{"choices":[{"message":%b}]}' % written).message == written


def test_numbers_keep_every_digit() -> None:
    number = b"123456789012345678901234567890.10e400"
    kept = collected(b'data: {"choices": [{"delta": {"seed": ' + number + b"}}]}\n\n").answer().message
    assert kept == b'{"role":"assistant","content":"","seed":' + number + b"}"


def test_a_surrogate_pair_cut_between_two_deltas_is_whole_again() -> None:
    kept = message(chunk({"content": "\ud83d"}), chunk({"content": "\ude00!"}))
    assert kept["content"] == "\U0001f600!"


def test_a_surrogate_pair_cut_within_arguments_is_whole_again() -> None:
    kept = message(
        chunk({"tool_calls": [call(0, "\ud83d", "a", "f")]}), chunk({"tool_calls": [call(0, "\ude00")]})
    )
    assert kept["tool_calls"][0]["function"]["arguments"] == "\U0001f600"


def test_a_lone_surrogate_stays_what_it_is_in_ascii() -> None:
    kept = collected(chunk({"content": "a\ud83d"})).answer().message
    assert kept == b'{"role":"assistant","content":"a\\ud83d"}'


def test_bytes_that_are_no_utf8_are_replaced_in_what_is_kept() -> None:
    assert message(b'data: {"choices": [{"delta": {"content": "a\xff"}}]}\n\n')["content"] == "a\ufffd"


def test_usage_comes_from_the_last_chunk_that_has_it() -> None:
    details = {"cached_tokens": 4}
    answer = collected(
        chunk({"content": "a"}, usage={"prompt_tokens": 1}),
        chunk(
            finish="stop",
            usage={"prompt_tokens": 9, "completion_tokens": 2.0, "prompt_tokens_details": details},
        ),
        event({"choices": [], "usage": None}),
    ).answer()
    assert answer.usage == Usage(9, 2, 4)


TOLD = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
ENDS: dict[str, dict[str, Any]] = {
    "Moonshot": {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": TOLD}]},
    "Groq": {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "x_groq": {"id": "r", "usage": TOLD},
    },
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("after", [[], [event({"choices": [], "usage": TOLD})]], ids=["once", "twice"])
@pytest.mark.parametrize("odd", [{}, {"id": 1}], ids=["as it should be", "with an odd member"])
def test_usage_is_found_within_the_choice_and_within_a_servers_own_member(
    end: dict[str, Any], after: list[bytes], odd: dict[str, Any]
) -> None:
    assert collected(chunk({"content": "a"}), event({**end, **odd}), *after).answer().usage == Usage(9, 2)


def test_the_usage_beside_the_choices_is_that_of_the_answer() -> None:
    other = {"prompt_tokens": 1}
    choice = {"index": 0, "delta": {}, "finish_reason": "stop", "usage": other}
    told = event({"choices": [choice], "usage": TOLD, "x_groq": {"usage": other}})
    assert collected(told).answer().usage == Usage(9, 2)


@pytest.mark.parametrize(
    ("of_usage", "beside"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 7}}, {}),
        ({"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 2}, {}),
        ({"prompt_cache_hit_tokens": 7, "prompt_tokens_details": {"audio_tokens": 0}}, {}),
        ({"cached_tokens": 7}, {}),
        ({}, {"timings": {"cache_n": 7, "prompt_n": 2, "prompt_ms": 30.9}}),
    ],
    ids=["OpenAI", "DeepSeek", "DeepSeek with details", "Moonshot", "llama.cpp"],
)
@pytest.mark.parametrize("odd", [{}, {"id": 1}], ids=["as it should be", "with an odd member"])
def test_what_was_cached_is_read_as_each_server_tells_it(
    of_usage: dict[str, Any], beside: dict[str, Any], odd: dict[str, Any]
) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, **of_usage}
    body = {"choices": [{"message": {"role": "assistant", "content": "a"}}], "usage": usage, **beside, **odd}
    assert read_completion(json.dumps(body).encode()).usage == Usage(9, 2, 7)


@pytest.mark.parametrize(
    ("of_usage", "output", "reasoning"),
    [
        ({"total_tokens": 311, "completion_tokens_details": {"reasoning_tokens": 300}}, 302, 300),
        ({"total_tokens": 311}, 302, 300),
        ({"total_tokens": 11, "completion_tokens_details": {"reasoning_tokens": 2}}, 2, 2),
        ({"total_tokens": 99, "completion_tokens_details": {"reasoning_tokens": 2}}, 2, 2),
        ({"total_tokens": 99, "cache_creation_input_tokens": 88}, 2, None),
        ({"total_tokens": 3}, 2, None),
    ],
    ids=["xAI", "Gemini", "OpenAI", "a total of something else", "cached tokens beside", "too small a total"],
)
def test_reasoning_that_is_in_the_total_alone_is_output(
    of_usage: dict[str, Any], output: int, reasoning: int | None
) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, **of_usage}
    body = {"choices": [{"message": {"role": "assistant", "content": "a"}}], "usage": usage}
    found = read_completion(json.dumps(body).encode()).usage
    assert found is not None
    assert (found.completion_tokens, found.reasoning_tokens) == (output, reasoning)


def test_of_several_usages_numbers_are_added_up_and_flags_stay_flags() -> None:
    first = {
        "prompt_tokens": 10,
        "cost": 0.5,
        "is_byok": True,
        "cost_details": {"free": False, "upstream": None},
    }
    second = {
        "prompt_tokens": 12,
        "cost": 0.25,
        "is_byok": True,
        "cost_details": {"free": True, "upstream": 1},
    }
    total = summed(b"", json.dumps(first).encode(), json.dumps(second).encode())
    assert json.loads(total) == {
        "prompt_tokens": 22,
        "cost": 0.75,
        "is_byok": True,
        "cost_details": {"free": True, "upstream": 1},
    }
    assert json.loads(total)["is_byok"] is True


def test_only_choice_0_is_kept_and_all_are_counted() -> None:
    collector = collected(chunk({"content": "a"}, "stop"), chunk({"content": "b"}, index=1))
    answer = collector.answer()
    assert (answer.message, answer.choices) == (b'{"role":"assistant","content":"a"}', 2)
    assert answer.complete
    assert collector.truncated


@pytest.mark.parametrize(
    ("parts", "complete", "truncated"),
    [
        ([], False, True),
        ([chunk({"content": "a"})], False, True),
        ([chunk({"content": "a"}), DONE], True, False),
        ([chunk({"content": "a"}, "stop")], True, False),
        ([chunk({"content": "a"}, "")], False, True),
        ([DONE], False, False),
        ([chunk({"content": "a"}), event({"error": {"message": "x"}})], False, False),
        ([chunk({"content": "a"}, "stop"), event({"error": {"message": "x"}}), DONE], False, False),
        ([chunk({"content": "a"}, "stop", error=None), DONE], True, False),
        ([b"data: oops\n\n", chunk({"content": "a"}, "stop")], True, False),
        ([chunk({"content": "a"}, "stop"), b"data: oops\n\n"], False, False),
        ([chunk({"content": "a"}, "stop"), b"event: ping\ndata: now\n\n"], True, False),
        ([chunk({"content": "a"}, "stop")[:-1]], False, True),
    ],
)
def test_how_a_stream_ended_is_told(parts: list[bytes], complete: bool, truncated: bool) -> None:
    collector = collected(*parts)
    assert (collector.answer().complete, collector.truncated) == (complete, truncated)


FAILURES: dict[str, dict[str, Any]] = {
    "an error": {"error": {"code": 502, "message": "x"}},
    "an error beside the choices": {
        "error": {"code": 502},
        "choices": [{"index": 0, "finish_reason": "error"}],
    },
    "an error in the choice": {"choices": [{"index": 0, "finish_reason": "error", "error": {"code": 502}}]},
    "an error in the choice alone": {"choices": [{"error": {"code": 502}}]},
    "a finish reason": {"choices": [{"index": 0, "finish_reason": "error"}], "usage": {"prompt_tokens": 1}},
    "an event that is the error": {"object": "error", "message": "x", "type": "Internal", "code": 500},
    "one with other names": {"error_code": "336100", "error_msg": "x"},
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("end", [[], [DONE], [chunk(finish="stop"), DONE]])
def test_an_answer_that_failed_midway_is_incomplete_wherever_its_error_stands(
    failure: dict[str, Any], end: list[bytes]
) -> None:
    collector = collected(chunk({"content": "It is par"}), event(failure), *end)
    answer = collector.answer()
    assert json.loads(answer.message or b"")["content"] == "It is par"
    assert (answer.complete, answer.error is None, collector.truncated) == (False, False, False)


@pytest.mark.parametrize("failure", [each for each in FAILURES.values() if "choices" in each])
def test_an_answer_in_one_piece_that_failed_midway_is_incomplete(failure: dict[str, Any]) -> None:
    said = {"message": {"role": "assistant", "content": "It is par"}}
    whole = {**failure, "choices": [{**each, **said} for each in failure["choices"]]}
    answer = read_completion(json.dumps(whole).encode())
    assert json.loads(answer.message or b"")["content"] == "It is par"
    assert (answer.complete, answer.error is None) == (False, False)


HARMLESS: list[dict[str, Any]] = [
    {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "error"}]},
    {"choices": [{"index": 0, "delta": {"content": 'an "error"'}, "error": None}], "error": None},
    {"code": 0, "message": "success", "choices": [{"index": 0, "delta": {}}]},
    {"code": 0, "message": "success"},
    {"message": "still there"},
    {"code": 500, "usage": {"prompt_tokens": 1}, "message": "x"},
]


@pytest.mark.parametrize("other", HARMLESS)
def test_what_tells_of_no_error_in_the_answer_leaves_it_complete(other: dict[str, Any]) -> None:
    assert collected(chunk({"content": "a"}), event(other), chunk(finish="stop"), DONE).answer().complete


def test_an_error_event_is_kept_as_written() -> None:
    assert collected(event({"error": {"code": 5}})).answer().error == b'{"code": 5}'
    assert collected(b'event: error\ndata: {"code": 5}\n\n').answer().error == b'{"code": 5}'
    assert collected(b"event: error\ndata: boom\n\n").answer().error == b'{"message": "boom"}'


def test_nothing_after_done_is_read() -> None:
    assert collected(chunk({"content": "a"}) + DONE + chunk({"content": "b"})).answer().message == (
        b'{"role":"assistant","content":"a"}'
    )


BESIDE: list[dict[str, Any]] = [
    {"choices": None, "usage": "x", "id": 5, "model": []},
    {"choices": [], "usage": {"prompt_tokens": "x", "prompt_tokens_details": 5}},
    {"choices": [{"index": 0, "delta": {"tool_calls": [None, {}]}}], "model": 5},
]


@pytest.mark.parametrize("odd", BESIDE)
def test_what_is_odd_beside_a_message_costs_only_itself(odd: object) -> None:
    answer = collected(event(odd), chunk({"content": "a"}, "stop")).answer()
    assert answer.complete
    assert json.loads(answer.message or b"")["content"] == "a"


def test_a_stream_too_large_to_collect_is_given_up_and_not_called_truncated() -> None:
    for collector in (StreamCollector(limit=50), StreamCollector(answer_limit=50)):
        collector.feed(chunk({"content": "a" * 100}))
        collector.feed(chunk(finish="stop"))
        assert collector.overflowed
        assert not collector.truncated
        assert not collector.answer().complete


def test_that_a_stream_was_truncated_is_one_event_with_an_error() -> None:
    (only,) = Decoder().feed(CHAT.error_event(UpstreamTruncated().body()))
    assert json.loads(only.data)["error"]["code"] == "upstream_truncated"


def test_of_a_thousand_deltas_every_one_is_in_the_message() -> None:
    parts = [f"{number} " for number in range(1_000)]
    said = [chunk({"content": part, "tool_calls": [call(0, part, "a", "f")]}) for part in parts]
    kept = message(*said, chunk(finish="stop"))
    assert kept["content"] == "".join(parts)
    assert kept["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "".join(parts)}}
    ]


def test_blocks_within_blocks_without_end_cost_themselves_alone() -> None:
    blocks = b'[{"thinking_blocks":' * 400 + b"[]" + b"}]" * 400
    delta = b'{"content":"Hi","thinking_blocks":%b}' % blocks
    answer = collected(b'data: {"choices":[{"index":0,"delta":%b}]}\n\n' % delta).answer()
    assert answer.is_malformed
    assert answer.message is not None
    assert answer.message.startswith(b'{"role":"assistant","content":"Hi"')


def test_a_completion_keeps_the_message_as_the_upstream_wrote_it() -> None:
    written = b'{ "content" : "a\\u0041", "role":"assistant", "n": 1.0e2 }'
    body = (
        b'{"id": "c1", "model": "m", "choices": [{"index": 0, "message": '
        + written
        + b', "finish_reason": "stop"}],'
        b'"usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}'
    )
    assert read_completion(body) == Answer(
        message=written,
        finish_reason="stop",
        usage=Usage(3, 2, None),
        complete=True,
        choices=1,
        id="c1",
        model="m",
    )


def test_a_completion_with_calls_says_so() -> None:
    body = {
        "choices": [{"message": {"tool_calls": [call(None, "{}", "a", "f")]}, "finish_reason": "tool_calls"}]
    }
    assert read_completion(json.dumps(body).encode()).tool_calls
    assert not read_completion(b'{"choices": [{"message": {"tool_calls": []}}]}').tool_calls


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"null", b"\xff", b'{"choices": []}', b"[" * 100_000]
)
def test_a_body_that_is_no_completion_has_no_message(body: bytes) -> None:
    assert read_completion(body) == Answer()


def test_an_error_body_is_kept() -> None:
    assert read_completion(b'{"error": {"code": 5}}') == Answer(error=b'{"code": 5}')
