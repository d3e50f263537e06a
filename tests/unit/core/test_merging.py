"""Notes for models that insist on alternating roles."""

from typing import Any

from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.formats.json import dumps, loads
from proxy.core.planning.plan import EMPTY, Gap, Plan, apply

NOTE = b'{"role":"user","content":"note"}'


def message(role: str, content: Any) -> bytes:
    return dumps({"role": role, "content": content})


def texts(raw: bytes) -> list[str]:
    content = loads(raw)["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def merged(roles: str, *gaps: tuple[int, int]) -> list[tuple[str, list[str]]]:
    """A chain of roles (u, a), cut at these gaps, as it goes out."""
    names = {"u": "user", "a": "assistant"}
    raws = [message(names[role], f"{role}{place}") for place, role in enumerate(roles)]
    plan = Plan(tuple(Gap(start, end, NOTE, 1) for start, end in gaps))
    return [(loads(raw)["role"], texts(raw)) for raw in CHAT.alternating(apply(plan, raws), plan.note_places)]


def test_a_note_joins_the_request_before_it():
    assert merged("uauau", (1, 3)) == [("user", ["u0", "note"]), ("assistant", ["a3"]), ("user", ["u4"])]


def test_a_note_joins_the_request_after_it():
    assert merged("uauau", (0, 2)) == [("user", ["note", "u2"]), ("assistant", ["a3"]), ("user", ["u4"])]


def test_a_note_between_two_requests_joins_both():
    assert merged("uauau", (1, 4)) == [("user", ["u0", "note", "u4"])]


def test_a_note_between_two_answers_stands_by_itself():
    roles = [role for role, _ in merged("uauauau", (2, 3))]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant", "user"][:7]


def test_two_gaps_that_share_a_neighbour_are_both_said():
    assert merged("auauau", (0, 1), (2, 3)) == [
        ("user", ["note", "u1", "note", "u3"]),
        ("assistant", ["a4"]),
        ("user", ["u5"]),
    ]


def test_requests_that_the_client_sent_side_by_side_stay_so():
    raws = [message("user", "one"), message("user", "two"), message("assistant", "three")]
    assert CHAT.alternating(raws, set()) == raws


def test_the_parts_of_a_request_stay_as_they_were():
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    raws = [message("assistant", "a"), message("user", [image, {"type": "text", "text": "what is it?"}])]
    plan = Plan((Gap(0, 1, NOTE, 1),))
    (only,) = CHAT.alternating(apply(plan, raws), plan.note_places)
    assert loads(only)["content"][1:] == [image, {"type": "text", "text": "what is it?"}]


# --- what a caller has handed in ---

HANDED = message("user", "handed in")
CALL = b'{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}'
RESULT = b'{"role":"tool","tool_call_id":"c","content":"result"}'


def after(prelude: list[bytes], roles: str, plan: Plan = EMPTY) -> list[tuple[str, list[str]]]:
    names = {"u": "user", "a": "assistant"}
    raws = [message(names[role], f"{role}{place}") for place, role in enumerate(roles)]
    sent = CHAT.alternating(apply(plan, raws), plan.note_places, prelude)
    return [(loads(raw)["role"], texts(raw) if loads(raw)["content"] else []) for raw in sent]


def test_a_text_that_was_handed_in_joins_the_request_after_it():
    assert after([HANDED], "uau") == [
        ("user", ["handed in", "u0"]),
        ("assistant", ["a1"]),
        ("user", ["u2"]),
    ]


def test_a_text_that_was_handed_in_joins_a_note_and_the_request_after_that():
    plan = Plan((Gap(0, 2, NOTE, 1),))
    assert after([HANDED], "uauau", plan)[0] == ("user", ["handed in", "note", "u2"])


def test_a_text_that_was_handed_in_stands_by_itself_before_an_answer():
    assert [role for role, _ in after([HANDED], "au")] == ["user", "assistant", "user"]


def test_results_that_were_handed_in_are_taken_note_of_before_a_user_speaks():
    prelude = [HANDED, CALL, RESULT]
    assert [role for role, _ in after(prelude, "ua")] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]
    assert [role for role, _ in after(prelude, "au")] == ["user", "assistant", "tool", "assistant", "user"]


def test_what_is_remembered_and_what_was_handed_in_join_the_request_after_them():
    assert after([NOTE, HANDED], "ua") == [("user", ["note", "handed in", "u0"]), ("assistant", ["a1"])]


# --- results of tools ---


def test_a_short_answer_parts_a_note_from_the_result_before_it():
    raws = [message("user", "u"), CALL, RESULT, message("assistant", "a"), message("user", "and?")]
    plan = Plan((Gap(3, 4, NOTE, 1),))
    sent = CHAT.alternating(apply(plan, raws), plan.note_places)
    assert [loads(raw)["role"] for raw in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert texts(sent[-1]) == ["note", "and?"]


def test_a_request_that_the_client_put_after_a_result_stays_there():
    raws = [message("user", "u"), CALL, RESULT, message("user", "and?")]
    assert CHAT.alternating(raws, set()) == raws


def test_a_note_is_parted_from_a_result_at_the_end_of_several_messages_in_one_slice():
    raws = [message("user", "u"), CALL + b"," + RESULT, message("assistant", "a"), message("user", "and?")]
    plan = Plan((Gap(2, 3, NOTE, 1),))
    sent = CHAT.alternating(apply(plan, raws), plan.note_places)
    assert [loads(raw)["role"] for raw in (sent[0], *sent[2:])] == ["user", "assistant", "user"]
