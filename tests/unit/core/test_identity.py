"""Identity: what SDKs change is left out of it, what people and models say is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

from proxy.core.conversation.messages import chain_hashes, next_hash, read_message, root_hash
from proxy.core.dialects.chat.messages import Content

ANSWER: dict[str, Any] = {
    "role": "assistant",
    "content": "Looking.",
    "refusal": None,
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {
                "name": "look",
                "arguments": '{"city": "Zürich", "days": 2, "deep": {"b": 1, "a": [1, 2]}}',
            },
        }
    ],
}


def identity(message: object) -> bytes:
    return read_message(Content.of(json.dumps(message).encode())).identity


def with_arguments(arguments: str) -> bytes:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    return identity(ANSWER | {"tool_calls": [call]})


def printed(**options: Any) -> str:
    """The answer's arguments, parsed and printed again."""
    return json.dumps(json.loads(ANSWER["tool_calls"][0]["function"]["arguments"]), **options)


# --- the same message


@pytest.mark.parametrize("without_nulls", [False, True])
@pytest.mark.parametrize("as_received", [False, True])
def test_an_answer_dumped_by_the_openai_sdk_is_the_same_message(without_nulls: bool, as_received: bool):
    answer = ChatCompletionMessage.model_validate(ANSWER)
    dumped = answer.model_dump(exclude_none=without_nulls, exclude_unset=as_received)
    assert identity(dumped) == identity(ANSWER)


def test_an_answer_built_by_the_openai_sdk_without_calls_is_the_same_message():
    answer = {"role": "assistant", "content": " \nYes.\n"}
    dumped = ChatCompletionMessage.model_validate(answer)
    assert identity(dumped.model_dump()) == identity(answer)
    assert identity(dumped.model_dump(exclude_none=True)) == identity(answer)


def test_a_refusal_is_the_same_message_as_a_member_and_as_a_part():
    as_part = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert identity(as_part) == identity({"role": "assistant", "content": None, "refusal": "No."})
    assert identity(as_part) != identity({"role": "assistant", "content": "No."})


def test_a_legacy_function_call_dumped_by_the_openai_sdk_is_the_same_message():
    answer = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    dumped = ChatCompletionMessage.model_validate(answer).model_dump()
    assert dumped["tool_calls"] is None
    assert identity(dumped) == identity(answer)


@pytest.mark.parametrize(
    "again",
    [
        printed(separators=(",", ":")),
        printed(sort_keys=True),
        printed(ensure_ascii=False),
        printed(indent=2),
        printed() + "\n",
    ],
)
def test_printing_the_arguments_again_changes_nothing(again: str):
    assert with_arguments(again) == identity(ANSWER)


@pytest.mark.parametrize(
    ("written", "reprinted"), [('{"x": 20.0}', '{"x": 20}'), ('{"x": 1e3}', '{"x": 1000}'), ("", "{}")]
)
def test_arguments_that_a_javascript_client_parsed_and_printed_are_the_same(written: str, reprinted: str):
    assert with_arguments(written) == with_arguments(reprinted)


@pytest.mark.parametrize(
    "extra",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_details": [{"type": "x"}]},
        {"annotations": [{"type": "url_citation"}]},
        {"cache_control": {"type": "ephemeral"}},
        {"parsed": {"x": 1}},
        {"timestamp": 17},
        {"name": ""},
        {"name": None},
        {"name": "model"},
        {"tool_call_id": None},
        {"tool_call_id": ""},
        {"refusal": ""},
    ],
)
def test_members_that_come_and_go_are_left_out(extra: dict[str, Any]):
    assert identity(ANSWER | extra) == identity(ANSWER)


def test_the_order_of_members_is_left_out():
    assert identity(dict(reversed(ANSWER.items()))) == identity(ANSWER)


def test_unknown_members_of_a_call_are_left_out():
    calls = [
        call | {"index": 0, "type": "function", "extra_content": {"x": 1}} for call in ANSWER["tool_calls"]
    ]
    assert identity(ANSWER | {"tool_calls": calls}) == identity(ANSWER)


@pytest.mark.parametrize("missing", ["refusal", "annotations", "audio", "function_call"])
def test_null_and_empty_members_may_be_missing(missing: str):
    assert identity({name: value for name, value in ANSWER.items() if name != missing}) == identity(ANSWER)


@pytest.mark.parametrize(
    "content",
    [
        "Hello there",
        " Hello there\n",
        [{"type": "text", "text": "Hello there"}],
        [{"type": "text", "text": "\tHello there "}],
        [{"text": "Hello there", "type": "text", "cache_control": {"type": "ephemeral"}}],
        [{"type": "text", "text": ""}, {"type": "text", "text": "Hello there", "annotations": []}],
    ],
)
def test_a_string_is_one_text_part_without_outer_white_space(content: object):
    assert identity({"role": "user", "content": content}) == identity(
        {"role": "user", "content": "Hello there"}
    )


@pytest.mark.parametrize("empty", ["", None, list[object](), [{"type": "text", "text": ""}], "  "])
def test_no_content_is_no_content_however_it_is_written(empty: object):
    calls = {"tool_calls": ANSWER["tool_calls"]}
    assert identity({"role": "assistant", "content": empty} | calls) == identity(
        {"role": "assistant"} | calls
    )


def test_empty_tool_calls_are_none():
    plain: dict[str, Any] = {"role": "assistant", "content": "x"}
    assert (
        identity(plain | {"tool_calls": list[object]()})
        == identity(plain | {"tool_calls": None})
        == identity(plain)
    )


def test_an_image_part_keeps_its_identity_through_reordering_and_cache_control():
    url = {"url": "https://example.com/a.png", "detail": "low"}
    first = {"type": "image_url", "image_url": url}
    again = {
        "cache_control": {"type": "ephemeral"},
        "image_url": dict(reversed(url.items())),
        "type": "image_url",
    }
    assert identity({"role": "user", "content": [first]}) == identity({"role": "user", "content": [again]})


# --- another message


@pytest.mark.parametrize(
    "change",
    [
        {"role": "user"},
        {"content": "Looked."},
        {"content": "Look ing."},
        {"content": "looking."},
        {"tool_calls": None},
        {"tool_calls": ANSWER["tool_calls"] * 2},
        {"content": [{"type": "text", "text": "Look"}, {"type": "text", "text": "ing."}]},
    ],
)
def test_a_message_that_says_something_else_is_another(change: dict[str, Any]):
    assert identity(ANSWER | change) != identity(ANSWER)


def test_what_two_users_say_are_two_messages():
    said = {"role": "user", "content": "Hello there"}
    assert len({identity(said | {"name": name}) for name in ("ada", "jo", "")}) == 3


@pytest.mark.parametrize("field", ["id", "name", "arguments"])
def test_a_call_with_another_id_name_or_arguments_is_another(field: str):
    function = dict(ANSWER["tool_calls"][0]["function"])
    call = {**ANSWER["tool_calls"][0], "function": function}
    (call if field == "id" else function)[field] = '"other"'
    assert identity(ANSWER | {"tool_calls": [call]}) != identity(ANSWER)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1}', '{"a": 2}'),
        ('{"a": 1}', '{"a": "1"}'),
        ('{"a": true}', '{"a": 1}'),
        ('{"a": false}', '{"a": 0}'),
        ('{"a": 0}', "{}"),
        ('{"a": false}', "{}"),
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ('{"a": " x"}', '{"a": "x"}'),
        ('{"a": 12345678901234567890123}', '{"a": 12345678901234567890124}'),
        ('{"a": 1', '{"a": 1}'),
        ("rm x", '"rm x"'),
    ],
)
def test_arguments_with_other_values_make_another_message(one: str, other: str):
    assert with_arguments(one) != with_arguments(other)


def test_the_result_of_another_call_is_another_message():
    first = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
    assert identity(first) != identity(first | {"tool_call_id": "call_2"})


@pytest.mark.parametrize(
    "other",
    [
        {"type": "image_url", "image_url": {"url": "https://example.com/b.png"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "high"}},
        {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
        {"type": "text", "text": "https://example.com/a.png"},
    ],
)
def test_another_image_is_another_message(other: dict[str, Any]):
    first = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert identity({"role": "user", "content": [first]}) != identity({"role": "user", "content": [other]})


def test_another_order_of_parts_is_another_message():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert identity({"role": "user", "content": parts}) != identity({"role": "user", "content": parts[::-1]})


# --- odd ones


@pytest.mark.parametrize("member", [{"refusal": "I cannot. {}"}, {"audio": {"id": "audio_{}"}}])
def test_answers_that_only_refuse_or_speak_are_told_apart(member: dict[str, Any]):
    one, other = (json.loads(json.dumps(member).replace("{}", number)) for number in "12")
    said_nothing: dict[str, Any] = {"role": "assistant", "content": None}
    assert len({identity(said_nothing), identity(said_nothing | one), identity(said_nothing | other)}) == 3
    assert identity(ANSWER | one) == identity(ANSWER)


def test_white_space_around_a_refusal_is_no_part_of_it():
    refusals = [{"role": "assistant", "refusal": text} for text in ("I cannot.", " I cannot.\n")]
    assert identity(refusals[0]) == identity(refusals[1])


@pytest.mark.parametrize("depth", [50, 300, 450, 700, 900])
def test_a_deeply_nested_part_has_an_identity(depth: int):
    raw = b'{"role":"user","content":[{"type":"x","d":' + b"[" * depth + b"]" * depth + b"}]}"
    assert len(read_message(Content.of(raw)).identity) == 32


@pytest.mark.parametrize("depth", [50, 300, 450, 700, 900, 100_000])
def test_deeply_nested_arguments_have_an_identity(depth: int):
    assert len(with_arguments("[" * depth + "]" * depth)) == 32


def test_a_lone_surrogate_has_an_identity():
    assert identity({"role": "user", "content": "\ud800"}) != identity({"role": "user", "content": "\ud801"})


@pytest.mark.parametrize(
    "raw", [b"{}", b"[]", b"null", b"not json", b'{"role":1,"content":2,"tool_calls":"x"}']
)
def test_an_odd_message_has_an_identity(raw: bytes):
    message = read_message(Content.of(raw))
    assert (message.role, message.calls, message.result_of) == ("", (), ())


# --- answers without the reasoning that they began with


@pytest.mark.parametrize(
    "told",
    [
        "<think>Four?</think>It is 4.",
        " <think>\nFour?\n</think>\n\nIt is 4.",
        "Four?</think> It is 4.",
        "<thinking>Four?</thinking>It is 4.",
        "<thought>Not </think>, is it?</thought>It is 4.",
    ],
)
def test_an_answer_is_known_by_its_words_without_its_thoughts(told: str):
    message = read_message(Content.of(json.dumps({"role": "assistant", "content": told}).encode()))
    assert message.spoken == identity({"role": "assistant", "content": "It is 4."})
    assert message.identity != message.spoken


THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": [{"type": "text", "text": "Four?"}]}
PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


@pytest.mark.parametrize(
    "parts",
    [
        [THOUGHT, {"type": "text", "text": "It is 4."}],
        [THOUGHT, {"type": "text", "text": "It "}, THOUGHT, {"type": "text", "text": "is 4.\n"}],
        [{"type": "reasoning", "text": "Four?"}, {"type": "text", "text": "It is 4."}],
        [{"type": "text", "text": "It is"}, {"type": "text", "text": " 4."}],
        [{"type": "text", "text": "<think>Fo"}, {"type": "text", "text": "ur?</think>It is 4."}],
    ],
)
def test_an_answer_in_parts_is_known_by_its_words_in_one_piece(parts: list[dict[str, Any]]):
    """As Mistral's reasoning models answer, and as clients keep what was streamed."""
    message = read_message(Content.of(json.dumps({"role": "assistant", "content": parts}).encode()))
    assert message.spoken == identity({"role": "assistant", "content": "It is 4."})
    assert message.identity != message.spoken


def test_an_answer_whose_parts_are_thoughts_alone_is_known_by_its_calls():
    calling = {"role": "assistant", "tool_calls": ANSWER["tool_calls"]}
    message = read_message(Content.of(json.dumps({**calling, "content": [THOUGHT]}).encode()))
    assert message.spoken == identity({**calling, "content": None})


@pytest.mark.parametrize("content", [[{"type": "text", "text": "It is 4."}], [PICTURE], [], None])
def test_an_answer_in_one_part_is_known_by_all_of_it(content: object):
    message = read_message(Content.of(json.dumps({"role": "assistant", "content": content}).encode()))
    assert message.spoken == b""


def test_identities_are_what_earlier_releases_have_stored():
    """Also where an answer has thoughts or several texts: what is stored is found by these."""
    texts = [{"type": "text", "text": "It "}, {"type": "text", "text": "is 4."}]
    stored = {
        "ca0853d863f167a7": {"role": "user", "content": "It is 4."},
        "d34ffc958e700fc1": {"role": "user", "content": texts},
        "fabbe832ddffe6ed": {"role": "assistant", "content": [THOUGHT, *texts, PICTURE]},
        "4383bd10a1961b9a": ANSWER,
        "5ee44e01136830da": {"role": "assistant", "content": None, "refusal": "I can't."},
        "eaeb1a4ff6c1dcd3": {"role": "assistant", "content": None, "audio": {"id": "audio_1"}},
        "88fedf52c0f1240e": {"role": "tool", "tool_call_id": "c1", "content": "Sunny."},
        "5bcce7486802ddb3": {"role": "user", "name": "jo", "content": "Hi"},
    }
    assert {identity(each).hex()[:16]: each for each in stored.values()} == stored


@pytest.mark.parametrize(
    ("role", "told"),
    [
        ("assistant", "It is 4."),
        ("assistant", "<think>It is 4."),
        ("assistant", "<b>It</b> is 4."),
        ("user", "<think>Four?</think>It is 4."),
    ],
)
def test_what_has_no_thoughts_at_its_beginning_is_known_by_all_of_it(role: str, told: str):
    message = read_message(Content.of(json.dumps({"role": role, "content": told}).encode()))
    assert message.spoken == b""


# --- chains


def test_a_chain_hash_rests_on_every_message_before_it():
    one, two, other = (identity({"role": "user", "content": text}) for text in ("1", "2", "3"))
    assert chain_hashes([one, two], root_hash()) == [
        next_hash(root_hash(), one),
        next_hash(next_hash(root_hash(), one), two),
    ]
    assert chain_hashes([one, two], root_hash())[-1] != chain_hashes([other, two], root_hash())[-1]
    assert chain_hashes([one, two], root_hash())[-1] != chain_hashes([two, one], root_hash())[-1]


def test_a_chain_of_nothing_is_empty():
    assert chain_hashes([], root_hash()) == []


def test_another_person_begins_another_chain():
    assert len({root_hash(), root_hash("ada"), root_hash("bob"), root_hash("\ud800")}) == 4


def test_reading_keeps_what_a_place_in_a_chain_needs():
    message = read_message(Content.of(json.dumps(ANSWER).encode()))
    assert (message.role, message.calls, message.result_of) == ("assistant", ("call_1",), ())
