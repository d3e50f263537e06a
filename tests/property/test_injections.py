"""Whatever is handed in: a valid conversation, the same bytes before every view, and nobody else's moved."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.cache import CacheMemory
from proxy.core.conversation.extension import Injection, take_extension
from proxy.core.conversation.messages import root_hash
from proxy.core.dialects.chat.body import read_body
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.plan import EMPTY, Plan
from proxy.core.policy.policy import Policy
from proxy.engine.intake.reader import Reader
from tests.support.conversations import (
    Sent,
    budgets,
    chain_from,
    encode,
    oddities,
    session,
    system,
    texts,
    user,
    valid_conversations,
)
from tests.support.upstreams import COUNTER, fault_in

letters = st.text(st.characters(), max_size=40)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | letters,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(letters, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(letters, values, max_size=3)
tools = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True),
        "arguments": arguments | arguments.map(json.dumps),
        "result": values,
    },
    optional={"cache_exchanges": st.integers(0, 9)},
)
handed = st.fixed_dictionaries(
    {"text": letters | texts, "tools": st.lists(tools, max_size=4)},
).filter(lambda value: bool(value["text"] or value["tools"]))


def taken(value: object) -> Injection:
    """What a client hands in, as it comes out of a body."""
    body = {"messages": [user("x")], "unabridged": {"inject": value}}
    injection = take_extension(read_body(json.dumps(body).encode(), 10))[1].inject
    assert injection is not None
    return injection


def sent(raws: list[bytes], plan: Plan, injection: Injection | None, *, alternates: bool) -> list[bytes]:
    """The messages that go out of a request with a head of one message."""
    head = encode(system("Be brief."))
    body = read_body(b'{"model":"m","messages":[%b]}' % b",".join([head, *raws]), 100_000)
    history = replace(
        asyncio.run(Reader(CHAT, COUNTER, CacheMemory()).read(body, root_hash())), injection=injection
    )
    whole = history.edited_body(plan, alternates=alternates)
    return [*read_body(whole, 200_000).messages]


@given(handed, valid_conversations(), st.data())
def test_the_same_messages_stand_before_every_view(
    value: dict[str, Any], messages: list[Sent], data: st.DataObject
):
    injection = taken(value)
    prelude = list(injection.messages(CHAT))
    chain = chain_from(messages)
    for done in session(chain, Policy(), data.draw(budgets(chain)), ""):
        raws = list(done.chain.raws)
        whole = sent(raws, done.plan, injection, alternates=False)
        assert whole[:1] == [encode(system("Be brief."))]
        assert whole[1 : 1 + len(prelude)] == prelude
        assert whole[1 + len(prelude) :] == sent(raws, done.plan, None, alternates=False)[1:]
        assert not oddities(whole)


@given(handed, valid_conversations(), st.data())
def test_roles_alternate_as_they_did_without_it(
    value: dict[str, Any], messages: list[Sent], data: st.DataObject
):
    injection = taken(value)
    chain = chain_from(messages)
    for done in session(chain, Policy(), data.draw(budgets(chain)), ""):
        raws = list(done.chain.raws)
        whole = sent(raws, done.plan, injection, alternates=True)
        assert not oddities(whole)
        roles = [Content.of(raw).role for raw in whole[1:]]
        assert roles[0] == "user"
        assert ("tool", "user") not in list(pairwise(roles))[: len(injection.messages(CHAT))]
        plain = [Content.of(raw).role for raw in sent(raws, done.plan, None, alternates=True)]
        assert _pairs_of_users(roles) <= _pairs_of_users(plain)


def _pairs_of_users(roles: list[str]) -> int:
    return sum(pair == ("user", "user") for pair in pairwise(roles))


@given(handed)
def test_what_is_stored_says_what_was_handed_in(value: dict[str, Any]):
    injection = Injection(taken(value).raw)
    assert injection.text == value["text"]
    assert [tool.name for tool in injection.tools] == [tool["name"] for tool in value["tools"]]
    for told, tool in zip(injection.tools, value["tools"], strict=True):
        given_arguments = tool["arguments"]
        if isinstance(given_arguments, str):
            assert told.arguments == given_arguments
        else:
            assert json.loads(told.arguments) == given_arguments
        result = tool["result"]
        assert told.result == result if isinstance(result, str) else json.loads(told.result) == result
        assert told.cache_exchanges == tool.get("cache_exchanges")
    said = [json.loads(raw) for raw in injection.messages(CHAT)]
    assert fault_in(said) is None
    assert [message["content"] for message in said if message["role"] == "tool"] == [
        tool.result for tool in injection.tools
    ]


@given(handed)
def test_what_was_handed_in_is_the_body_s_only_change(value: dict[str, Any]):
    injection = taken(value)
    raws = [encode(user("Hello"))]
    head = encode(system("Be brief."))
    assert sent(raws, EMPTY, None, alternates=False) == [head, *raws]
    assert sent(raws, EMPTY, injection, alternates=False) == [head, *injection.messages(CHAT), *raws]
