"""What models and users ask for again, and what they do not."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from proxy.core.dialects.dialect import Content
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Gap, Plan, Replacement
from proxy.core.proof.evidence import Signal
from proxy.core.proof.regret import Regret, called_again, said_again
from tests.support.clients import user
from tests.support.conversations import chain_from
from tests.support.upstreams import Message, calling, said

WISH = "Please never book a boat that leaves the harbour before nine in the morning."


def result(call_id: str, text: str = "18 degrees") -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def talk(*calls: tuple[str, str]) -> list[Message]:
    """A talk in which tools are called one after the other; the result of call n stands at 2 + 2 n."""
    messages = [user(WISH)]
    for number, (name, arguments) in enumerate(calls):
        messages += [calling((f"c{number}", name, arguments)), result(f"c{number}")]
    return [*messages, said("So it is."), user("Go on, please.")]


def asked(messages: list[Message], plan: Plan, by: Message) -> list[Regret]:
    if by["role"] == "user":
        return said_again([len(messages)], chain_from([*messages, by]), plan)
    chain = chain_from(messages)
    return called_again(chain.dialect.read(json.dumps(by).encode()), chain, plan, len(chain))


CUT = Plan((Gap(1, 3),))
LOOK = ("look", '{"path": "src/bridge.py", "from": 1}')


def test_a_call_that_is_made_again_while_its_result_is_cut() -> None:
    again = calling(("c9", "look", '{"from":1,"path":"src/bridge.py"}'))
    assert asked(talk(LOOK), CUT, again) == [Regret(Signal.RERUN, 2, is_cut=True)]


def test_one_whose_result_is_cleared_counts_too() -> None:
    cleared = Plan((), (Replacement(2, b"{}", 1, "old"),))
    assert asked(talk(LOOK), cleared, calling(("c9", *LOOK))) == [Regret(Signal.RERUN, 2, is_cut=True)]


def test_one_whose_result_still_stands_is_told_apart() -> None:
    assert asked(talk(LOOK), EMPTY, calling(("c9", *LOOK))) == [Regret(Signal.RERUN, 2, is_cut=False)]


def test_the_newest_result_of_the_call_is_what_was_at_hand() -> None:
    assert asked(talk(LOOK, LOOK), CUT, calling(("c9", *LOOK))) == [Regret(Signal.RERUN, 4, is_cut=False)]


def test_a_file_that_is_read_again_elsewhere_in_it() -> None:
    again = calling(("c9", "look", '{"path": "src/bridge.py", "from": 400}'))
    assert asked(talk(LOOK), CUT, again) == [Regret(Signal.REREAD, 2, is_cut=True)]


def test_a_file_that_is_read_again_together_with_one_of_a_longer_name() -> None:
    again = calling(("c9", "look", '{"paths": ["src/bridge.py", "src/harbour_and_quay.py"]}'))
    assert asked(talk(LOOK), CUT, again) == [Regret(Signal.REREAD, 2, is_cut=True)]


def test_another_file_or_another_tool_is_nothing_again() -> None:
    for call in (("look", '{"path": "src/road.py"}'), ("edit", LOOK[1]), ("look", "{}")):
        assert asked(talk(LOOK), CUT, calling(("c9", *call))) == []


def test_a_user_who_says_the_same_again() -> None:
    again = user("Please, never book a boat that leaves the harbour before nine in the morning!")
    gone = Plan((Gap(0, 1),))
    assert asked(talk(LOOK), gone, again) == [Regret(Signal.SAID_AGAIN, 0, is_cut=True)]
    assert asked(talk(LOOK), EMPTY, again) == [Regret(Signal.SAID_AGAIN, 0, is_cut=False)]


def test_a_user_who_says_something_else_or_hardly_anything() -> None:
    for text in (WISH.replace("nine", "10:45"), "Go on, please.", "What did the bridge cost us in the end?"):
        assert asked(talk(LOOK), Plan((Gap(0, 1),)), user(text)) == []


def test_two_users_who_say_the_same_again_in_one_turn_both_ask() -> None:
    other = "Does the ferry to the island also take my bicycle on Sundays?"
    talked = [user(WISH), user(other), said("So it is."), user(other), user(WISH)]
    found = said_again([3, 4], chain_from(talked), Plan((Gap(0, 2),)))
    assert found == [Regret(Signal.SAID_AGAIN, place, is_cut=True) for place in (1, 0)]


def test_of_a_long_history_that_comes_at_once_only_the_newest_messages_ask() -> None:
    wishes = [user(f"{WISH} That is my wish number {place // 2}.") for place in range(100)]
    assert len(said_again(range(100), chain_from(wishes), EMPTY)) == 4


def test_no_message_is_decoded_twice_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, content = Counter[int](), Chain.content

    def noted(chain: Chain, position: int) -> Content:
        decoded[position] += 1
        return content(chain, position)

    monkeypatch.setattr(Chain, "content", noted)
    wishes = [user(f"{WISH} That is my wish number {place}.") for place in range(100)]
    assert said_again(range(100), chain_from(wishes), EMPTY) == []
    assert set(decoded.values()) == {1}
