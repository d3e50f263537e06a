"""What a client is told of a stream in which the proxy answers calls, event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.dialects.answers import Usage
from proxy.core.dialects.chat.stream_editor import StreamEditor
from tests.support.tool_loop import RULES, always, never, streamed

DONE = b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, **top: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "one", "choices": [choice], **top}).encode() + b"\n\n"


def call(
    name: str = "", arguments: str = "", index: int = 0, call_id: str | None = None, **others: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {"index": index, **({"id": call_id} if call_id else {})}
    function = {**({"name": name} if name else {}), **({"arguments": arguments} if arguments else {})}
    return {**others, "tool_calls": [{**made, "function": function}]}


def usage(prompt: int) -> bytes:
    told = {"prompt_tokens": prompt, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}}
    return b"data: " + json.dumps({"id": "one", "choices": [], "usage": told}).encode() + b"\n\n"


ROLE = chunk({"role": "assistant", "content": ""})
TEXT = chunk({"content": "Let me see."})
GET = [chunk(call("get_a", call_id="c1")), chunk(call(arguments="{}"))]
OTHER = [chunk(call("other", call_id="c2", index=1)), chunk(call(arguments="{}", index=1))]
CALLS = chunk({}, "tool_calls")
STOP = chunk({}, "stop")
SAID = [ROLE, chunk({"content": "It is so."}), STOP, DONE]


def datas(stream: bytes) -> list[Any]:
    lines = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def text_of(stream: bytes) -> str:
    return "".join(each["choices"][0]["delta"].get("content") or "" for each in datas(stream))


def test_text_and_reasoning_pass_at_once_and_byte_for_byte():
    events = [ROLE, chunk({"reasoning_content": "hm"}, odd={"x": 1}), TEXT, *GET, CALLS, DONE]
    told = streamed([events], never)
    assert told.passed[:3] == events[:3]
    assert told.passed[3:7] == [b""] * 4


def test_a_call_of_another_tool_passes_when_its_arguments_begin():
    first, arguments = OTHER
    assert streamed([[first, arguments, CALLS, DONE]], always).passed[:4] == [
        b"",
        first + arguments,
        CALLS,
        DONE,
    ]


def test_what_is_said_of_a_call_stays_in_its_order():
    both: dict[str, Any] = {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":'}}]}
    both["tool_calls"].append({"index": 1, "id": "c2", "function": {"name": "other"}})
    rest = [chunk(call(arguments="1}")), chunk(call(arguments="{}", index=1)), CALLS, DONE]
    stream = [chunk(call("set_a", call_id="c1")), chunk(both), *rest]
    assert streamed([stream], always).whole == b"".join(stream)


def test_a_call_without_arguments_is_known_when_the_answer_ends():
    named = chunk(call("other", call_id="c1"))
    assert streamed([[ROLE, named, CALLS, DONE]], always).whole == ROLE + named + CALLS + DONE
    told = streamed([[ROLE, chunk(call("get_a", call_id="c1")), CALLS, DONE], SAID], always)
    assert [each.tool for each in told.hidden] == ["get_a"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_byte_by_byte_is_the_same_as_at_once(end: bytes):
    rounds = [b"".join(each).replace(b"\n", end) for each in ([ROLE, *GET, CALLS, usage(1), DONE], SAID)]
    singly = [[each[at : at + 1] for at in range(len(each))] for each in rounds]
    assert streamed(singly, always).whole == streamed([[each] for each in rounds], always).whole


@pytest.mark.parametrize("calls", [{}, call("get_a", "{}", call_id="c1")])
def test_what_is_told_beside_a_text_is_told_once_where_the_text_goes_ahead(calls: dict[str, Any]):
    sure = {"content": [{"token": "Wait.", "logprob": -0.5}]}
    last = {"index": 0, "delta": {"content": "Wait.", **calls}, "logprobs": sure, "finish_reason": "stop"}
    end = b"data: " + json.dumps({"id": "one", "choices": [last]}).encode() + b"\n\n"
    for answered in (always, never):
        told = datas(streamed([[*GET, end, DONE], SAID], answered).whole)
        assert [each["choices"][0]["logprobs"] for each in told if each["choices"][0].get("logprobs")] == [
            sure
        ]


def test_a_call_whose_pieces_have_another_id_is_one_call():
    pieces = [chunk(call("recall", call_id="c1")), chunk(call(arguments='{"a"', call_id="c2"))]
    told = streamed([[ROLE, *pieces, chunk(call(arguments=":1}", call_id="c2")), CALLS, DONE], SAID], always)
    assert [(each.id, each.arguments) for each in told.hidden] == [("c1", '{"a":1}')]
    assert told.whole == ROLE + chunk({"content": "It is so."}) + STOP + DONE


def test_whole_calls_with_one_index_and_no_id_are_told_apart():
    both = [call("recall", '{"a":1}')["tool_calls"][0], call("other", "{}")["tool_calls"][0]]
    told = streamed([[ROLE, chunk({"tool_calls": both}), STOP, DONE]], always)
    assert [each.arguments for each in told.hidden] == ['{"a":1}']
    assert datas(told.whole)[1]["choices"][0]["delta"] == {"tool_calls": both[1:]}


def test_text_between_held_calls_passes_at_once():
    mixed = chunk({**call("get_a", "{}", call_id="c1"), "content": "now"})
    told = streamed([[mixed, TEXT, CALLS, DONE]], always)
    assert [text_of(each) for each in told.passed[:2]] == ["now", "Let me see."]
    assert b"get_a" not in told.whole


def test_a_name_in_pieces_is_known_when_the_arguments_begin():
    pieces = [chunk(call("re", call_id="c1")), chunk(call("call")), chunk(call(arguments="{}"))]
    told = streamed([[ROLE, *pieces, CALLS, DONE], SAID], always)
    assert told.whole == ROLE + chunk({"content": "It is so."}) + STOP + DONE
    assert told.hidden[0].tool == "recall"


def test_a_call_without_an_id_gets_one_that_its_result_can_name():
    told = streamed([[chunk(call("get_a", "{}")), CALLS, DONE], SAID], always)
    assert told.hidden[0].id == told.rounds[0]["tool_calls"][0]["id"] == "call_0"


def test_all_rounds_are_one_stream_with_one_role_one_id_and_one_usage():
    first = [ROLE, TEXT, *GET, CALLS, usage(10), DONE]
    second = [each.replace(b'"one"', b'"two"') for each in (*SAID[:3], usage(12), DONE)]
    told = datas(streamed([first, second], always).whole)
    assert {each["id"] for each in told} == {"one"}
    assert [each["choices"][0]["delta"] for each in told[:-1]] == [
        {"role": "assistant", "content": ""},
        {"content": "Let me see."},
        {"content": "It is so."},
        {},
    ]
    assert told[-1]["usage"] == {
        "prompt_tokens": 22,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


@pytest.mark.parametrize("is_groqs", [True, False], ids=["Groq", "Moonshot"])
def test_the_usage_of_all_rounds_is_summed_where_it_stands(is_groqs: bool):
    def end(finish: str, prompt: int) -> bytes:
        told = {"prompt_tokens": prompt, "completion_tokens": 1}
        choice: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": finish}
        chunk = {"choices": [choice if is_groqs else {**choice, "usage": told}]}
        return (
            b"data: "
            + json.dumps(chunk | ({"x_groq": {"usage": told}} if is_groqs else {})).encode()
            + b"\n\n"
        )

    told = streamed([[ROLE, *GET, end("tool_calls", 10), DONE], [*SAID[:2], end("stop", 12), DONE]], always)
    assert told.answer.usage == Usage(22, 2)
    last = datas(told.whole)[-1]
    assert (last["x_groq"] if is_groqs else last["choices"][0])["usage"]["prompt_tokens"] == 22


def test_what_comes_before_an_answer_gives_its_rounds_no_id():
    filters: dict[str, Any] = {
        "id": "",
        "created": 0,
        "model": "",
        "choices": [],
        "prompt_filter_results": [],
    }
    before = b"data: " + json.dumps(filters).encode() + b"\n\n"
    first = [chunk({"content": "Wait."}, created=1, model="m"), *GET, CALLS, DONE]
    second = [chunk({"content": "So."}, created=2, model="m", id="two"), chunk({}, "stop", id="two"), DONE]
    told = datas(streamed([[before, *first], [before, *second]], always).whole)
    assert told[0] == filters
    assert {each["id"] for each in told[1:]} == {"one"}
    assert {each["created"] for each in told[1:] if "created" in each} == {1}


def test_the_role_is_told_once_also_where_it_came_with_a_hidden_call():
    opening = chunk({"role": "assistant", "content": None, **call("get_a", "{}", call_id="c1")})
    told = datas(streamed([[opening, CALLS, DONE], SAID], always).whole)
    assert [each["choices"][0]["delta"].get("role") for each in told] == ["assistant", None, None]


def test_the_clients_calls_are_numbered_without_the_hidden_ones():
    told = streamed([[ROLE, *GET, *OTHER, CALLS, DONE]], always)
    assert [each["choices"][0]["delta"] for each in datas(told.whole)[1:3]] == [
        {"tool_calls": [{"index": 0, "id": "c2", "function": {"name": "other"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
    ]
    assert datas(told.whole)[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_what_is_changed_keeps_its_other_lines_members_and_line_ends():
    odd = b': note\r\nid: 7\r\ndata: {"odd": 1.50, "id": "x", "choices": [{"index": 0,\r\ndata: '
    odd += b'"delta": {"role": "assistant", "content": "\\u00e9", "x": 1e2}, "finish_reason": null}]}\r\n\r\n'
    told = streamed([[ROLE, *GET, CALLS, DONE], [odd, STOP, DONE]], always)
    assert (
        b': note\r\nid: 7\r\ndata: {"odd":1.50,"id":"one","choices":[{"index":0,'
        b'"delta":{"content":"\\u00e9","x":1e2},"finish_reason":null}]}\r\n\r\n' in told.whole
    )


def test_a_finish_reason_that_is_empty_ends_nothing():
    said = [{"content": "Let me see."}, call("re", call_id="c1"), call("call"), call(arguments="{}")]
    begun = [chunk({"role": "assistant"}, ""), *(chunk(each, "") for each in said)]
    told = streamed([[*begun, CALLS, DONE], SAID], always)
    assert [each.tool for each in told.hidden] == ["recall"]
    assert text_of(told.whole) == "Let me see.It is so."
    assert not streamed([begun], always).hidden, "the stream broke off"


def test_chunks_in_named_events_are_chunks():
    def named(events: list[bytes]) -> list[bytes]:
        return [b"event: completion\n" + each for each in events]

    other = b'event: progress\ndata: {"done": 0.5}\n\nevent: note\ndata: {"choices\n\n'
    told = streamed([named([ROLE, *GET, CALLS, DONE]), [other, *named(SAID[1:])]], always)
    assert [each.tool for each in told.hidden] == ["get_a"]
    assert told.whole == b"".join([*named([ROLE]), other, *named(SAID[1:])])
    assert told.answer.complete


def test_a_whole_call_in_the_event_that_ends_the_answer():
    told = streamed([[ROLE, chunk(call("get_a", "{}", call_id="c1"), "tool_calls"), DONE], SAID], always)
    assert told.whole == ROLE + chunk({"content": "It is so."}) + STOP + DONE


def test_the_text_in_the_event_that_ends_a_round_goes_on():
    last = chunk({**call("get_a", "{}", call_id="c1"), "content": "Wait."}, "tool_calls")
    told = datas(streamed([[last, DONE], SAID], always).whole)
    assert told[0]["choices"] == [{"index": 0, "delta": {"content": "Wait."}, "finish_reason": None}]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_calls_of_an_answer_that_was_cut_short_are_the_clients(finish: str):
    stream = [ROLE, *GET, chunk({}, finish), DONE]
    assert streamed([stream], always).whole == b"".join(stream)


@pytest.mark.parametrize("finish", ["tool_calls", "stop", "eos_token", "tool_use", "STOP"])
def test_calls_are_whole_whatever_an_upstream_calls_its_end(finish: str):
    told = streamed([[ROLE, *GET, chunk({}, finish), DONE], SAID], always)
    assert [each.id for each in told.hidden] == ["c1"]
    assert text_of(told.whole) == "It is so."


def test_a_call_that_nobody_may_answer_any_more_is_dropped_where_the_tool_is_ours():
    recall = [ROLE, chunk(call("recall", "{}", call_id="c1")), CALLS, DONE]
    told = streamed([recall, recall, recall], always)
    assert datas(told.whole) == datas(ROLE + STOP)
    assert "tool_calls" not in told.rounds[-1]


def test_a_comment_stands_before_the_end():
    editor = StreamEditor(RULES)
    passed = b"".join(map(editor.feed, [ROLE, *GET, CALLS, DONE]))
    editor.settle(editor.answerable_calls())
    last = editor.end(b": hits\n\n")
    assert last.endswith(b"}\n\n: hits\n\n" + DONE)
    assert datas(last) == datas(STOP)
    assert passed == ROLE
    assert editor.feed(b"more") == b"more"


def test_other_choices_pass_as_they_are():
    other = TEXT.replace(b'"index": 0', b'"index": 1')
    assert streamed([[ROLE, other, STOP, DONE]], always).whole == ROLE + other + STOP + DONE


# --- what goes wrong ---


def test_an_error_in_mid_stream_comes_after_what_is_surely_the_clients():
    error = b'data: {"error": {"message": "no"}}\n\n'
    told = streamed([[ROLE, OTHER[0], error, TEXT]], always)
    assert told.whole == ROLE + OTHER[0] + error + TEXT
    ours = chunk(call("recall", call_id="c1"))
    assert streamed([[ROLE, ours, b"event: error\ndata: no\n\n"]], always).whole == (
        ROLE + b"event: error\ndata: no\n\n"
    )


@pytest.mark.parametrize("end", [[], [DONE], [CALLS, DONE]])
@pytest.mark.parametrize(
    "failure", [{"error": {"code": 502}}, {"error": {"code": 502}, "finish_reason": "error"}]
)
@pytest.mark.parametrize("is_beside", [True, False])
def test_calls_of_an_answer_that_failed_midway_are_the_clients_and_ours_are_dropped(
    end: list[bytes], failure: dict[str, Any], is_beside: bool
):
    choice = {"index": 0, "delta": {"content": ""}, **failure}
    beside = {"error": choice.pop("error")} if is_beside else {}
    failed = b"data: " + json.dumps({"id": "one", "choices": [choice], **beside}).encode() + b"\n\n"
    told = streamed([[ROLE, *GET, failed, *end]], always)
    assert told.whole == ROLE + b"".join(GET) + failed + b"".join(end)
    ours = chunk(call("recall", "{}", call_id="c1"))
    assert streamed([[ROLE, ours, failed]], always).whole == ROLE + failed


def test_a_stream_that_breaks_off_gives_the_client_its_calls_and_nothing_of_ours():
    assert streamed([[ROLE, OTHER[0]]], always).whole == ROLE + OTHER[0]
    assert streamed([[ROLE, *GET]], always).whole == ROLE + b"".join(GET)
    assert streamed([[ROLE, chunk(call("recall", call_id="c1"))]], always).whole == ROLE


def test_half_an_event_at_the_end_passes_unless_it_may_be_a_call():
    assert streamed([[ROLE, b'data: {"choices": [{"del']], always).whole == ROLE + b'data: {"choices": [{"del'
    assert streamed([[ROLE, b'data: {"choices": [{"delta": {"tool_calls": [']], always).whole == ROLE


def test_a_final_event_without_its_blank_line_ends_the_answer():
    told = streamed([[ROLE, *GET, CALLS, b"data: [DONE]\n"], SAID], always)
    assert told.whole == ROLE + chunk({"content": "It is so."}) + STOP + DONE


def test_a_last_event_that_ends_with_a_carriage_return_is_whole():
    events = [each.replace(b"\n", b"\r") for each in (ROLE, OTHER[0], CALLS)]
    assert streamed([events], lambda _: False).whole == b"".join(events)


def test_from_an_endless_event_on_the_bytes_flow():
    editor = StreamEditor(RULES, limit=1000)
    endless = b'data: {"x": "' + b"x" * 600
    passed = [editor.feed(each) for each in (ROLE, OTHER[0], endless, b"x" * 600, b"y" * 10)]
    assert passed == [ROLE, b"", b"", OTHER[0] + endless + b"x" * 600, b"y" * 10]
    assert editor.answerable_calls() == []
