"""Signed reasoning in messages of Chat Completions: told from what is not signed, and cut out to the byte."""

from __future__ import annotations

import json

import pytest

from proxy.core.dialects.chat.dialect import CHAT

THINKING = b'"thinking_blocks": [{"type":"thinking","thinking":"so","signature":"EqoB"}]'
DETAILS = b'"reasoning_details":[{"type":"reasoning.text","text":"so","signature":"EqoB","index":0}]'
ENCRYPTED = (
    b'"reasoning_details":[{"type":"reasoning.encrypted","data":"gAAA","format":"openai-responses-v1"}]'
)
REDACTED = b'"thinking_blocks":[{"type":"redacted_thinking","data":"EmwK"}]'
SIGNED = [
    THINKING,
    THINKING + b',"reasoning_content":"so"',
    DETAILS,
    DETAILS + b', "reasoning": "so"',
    ENCRYPTED,
    REDACTED,
    b'"reasoning_content":"so", "signature" : "EqoB"',
    b'"reasoning_signature":"EqoB","reasoning_content":"so"',
]


@pytest.mark.parametrize("signed", SIGNED)
@pytest.mark.parametrize(
    "written",
    [
        b'{"role":"assistant",%b"content":"x , \\ud83d y"}',
        b'{%b "role" : "assistant", "content": "\\ud83d\\ude00"}',
        b'{ "content":"{\\"signature\\":1}"\n, "role":"assistant"%b }',
    ],
)
def test_it_is_cut_out_of_a_message_and_every_other_byte_stays(signed: bytes, written: bytes):
    is_last = written.endswith(b"%b }")
    raw = written.replace(b"%b", b", " + signed if is_last else signed + b",")
    assert CHAT.holds_signed_reasoning(raw)
    expected = written.replace(b"%b", b"")
    if written.startswith(b"{%b"):
        expected = b"{" + expected[1:].lstrip()
    assert CHAT.without_reasoning(raw) == expected
    assert not CHAT.holds_signed_reasoning(CHAT.without_reasoning(raw))


@pytest.mark.parametrize(
    "member",
    [
        b'"reasoning_content":"plain, as DeepSeek wants it back"',
        b'"reasoning":"plain"',
        b'"reasoning_details":[{"type":"reasoning.text","text":"so","signature":null,"format":"unknown"}]',
        b'"reasoning_details":[{"type":"reasoning.encrypted","data":"CiQ","format":"google-gemini-v1"}]',
        b'"thinking_blocks":[{"type":"thinking","thinking":"so","signature":""}]',
        b'"reasoning_details":"none"',
        b'"name":"reasoning"',
    ],
)
def test_reasoning_that_nobody_signed_stays(member: bytes):
    raw = b'{"role":"assistant","content":"x",%b}' % member
    assert not CHAT.holds_signed_reasoning(raw)
    assert CHAT.without_reasoning(raw) == raw


def test_what_a_library_repeats_in_its_own_fields_goes_as_well():
    own = b'"provider_specific_fields":{"citations":null,%b}' % THINKING
    raw = b'{"role":"assistant","content":"x",%b,%b}' % (own, THINKING)
    without = CHAT.without_reasoning(raw)
    assert without == b'{"role":"assistant","content":"x","provider_specific_fields":{"citations":null}}'


def test_of_several_messages_in_one_slice_each_loses_its_own():
    call = b'{"role":"assistant",%b,"tool_calls":[]}' % DETAILS
    result = b'{"role":"tool","content":"\\ud800 reasoning","tool_call_id":"c"}'
    slices = b",".join((call, result, b' {"role":"assistant",%b}' % THINKING))
    expected = b'{"role":"assistant","tool_calls":[]},' + result + b', {"role":"assistant"}'
    assert CHAT.without_reasoning(slices) == expected


def test_a_name_that_is_written_twice_hides_nothing():
    raw = b'{"role":"assistant",%b,"content":"x",%b}' % (DETAILS, DETAILS)
    assert json.loads(CHAT.without_reasoning(raw)) == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize("raw", [b"{}", b"[]", b'"reasoning"', b'{"reasoning', b'{"reasoning":1}'])
def test_what_is_no_such_message_stays(raw: bytes):
    assert not CHAT.holds_signed_reasoning(raw)
    assert CHAT.without_reasoning(raw) == raw


# --- refusals of it ---

BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different"
    " conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior`."
)


def told(message: str, **members: object) -> bytes:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", **members}}).encode()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, told(BOUND)),
        (400, told("messages.3.content.0: Invalid signature in thinking block")),
        (400, told("messages.3.content.1: Invalid `signature` in `redacted_thinking` block")),
        (400, told("litellm.BadRequestError: AnthropicException - " + json.dumps({"message": BOUND}))),
        (400, told("Provider returned error", metadata={"raw": json.dumps({"error": {"message": BOUND}})})),
        (
            400,
            told(
                "messages.5.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant"
                " message cannot be modified. These blocks must remain as they were in the original response."
            ),
        ),
        (400, told("The encrypted content gAAA...DQ== could not be verified.")),
        (400, told("no", code="invalid_encrypted_content")),
        (200, told(BOUND)),
    ],
)
def test_a_refusal_of_signed_reasoning_is_understood(status: int, body: bytes):
    assert CHAT.refusal(status, body).rejects_reasoning


@pytest.mark.parametrize(
    ("status", "body", "request_body"),
    [
        (400, told("Expected `thinking` or `redacted_thinking`, but found `tool_use`."), b""),
        (400, told("Function call is missing a thought_signature in functionCall parts."), b""),
        (400, told("Invalid signature in the webhook."), b""),
        (400, told('Unknown value "Invalid signature in thinking block"'), b"Invalid signature in thinking"),
        (401, told(BOUND), b""),
        (200, b'{"choices":[{"delta":{"content":"Invalid signature in thinking block"}}]}', b""),
    ],
)
def test_no_other_is_taken_for_one(status: int, body: bytes, request_body: bytes):
    assert not CHAT.refusal(status, body, request_body).rejects_reasoning


def test_members_that_a_model_refuses_are_cut_out_of_a_body_and_every_other_byte_stays():
    bare = (
        b'{"model" : "m", "messages":[{"role":"user","content":"reasoning_content"},'
        b'{"role":"assistant", "content":"\\ud83d y" }], "reasoning_content": 1}'
    )
    raw = bare.replace(b'"role":"assistant", ', b'"role":"assistant", "reasoning_content" : "so", ')
    assert CHAT.without_members(raw, ["reasoning_content"]) == bare
    assert CHAT.without_members(raw, ["reasoning"]) == raw
    assert CHAT.without_members(bare, ["reasoning_content"]) == bare
