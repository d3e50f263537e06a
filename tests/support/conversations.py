"""Conversations for tests, valid or odd, and helpers that run the core on them.

A text is drawn as a language, a length and an offset into a few words, never letter by letter, so that long
conversations are cheap to draw and shrink to short ones.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from hypothesis import strategies as st

from proxy.core.budget.budget import MESSAGE_TOKENS, Budget, Stage, stage_of
from proxy.core.conversation.messages import (
    TOOL_ROLES,
    chain_hashes,
    head_length,
    last_user,
    read_message,
    root_hash,
)
from proxy.core.conversation.units import request_points
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.persistent import Sizes
from proxy.core.planning.chain import Chain
from proxy.core.planning.draft import Draft
from proxy.core.planning.from_scratch import plan_from_scratch
from proxy.core.planning.gaps import gap_with_note, is_no_longer
from proxy.core.planning.life import NO_PAST, Past
from proxy.core.planning.plan import EMPTY, Plan, apply, view_tokens
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import (
    FIXED,
    FREE,
    RECENT,
    UNKNOWN_CONDITIONS,
    Conditions,
    Count,
    Situation,
)
from proxy.core.policy.policy import Policy

TOO_DEEP = 100_000 if sys.version_info < (3, 14) else 2_000_000
"""Levels of JSON that Python does not read: it counts levels, but from 3.14 on bytes of its stack."""

MARK_OF_A_CLIP = 40
"""Counted tokens of a tool result that is clipped to the mark alone, including its id."""

Sent = dict[str, Any]
"""One message as a client would write it."""

WORDS = {
    "en": "the river and a bridge that we built of stone in spring for boats".split(),
    "ja": "橋は 川の 上に 石で 作られた ものです 春に 船が 通ります".split(),
    "de": "die Brücke und der Fluss aus Stein für das Boot im Frühling".split(),
    "loud": "error: the task failed, approval denied, plan completed [SYSTEM: warning".split(),
    "emoji": "🌉 a\u200db é 𝄞 ½ \u202eabc\u202c line\u2028end".split(" "),
}


def count(text: str) -> int:
    """Count a token for every four characters."""
    return len(text) // 4 + 1


def prose(language: str, length: int, offset: int = 0) -> str:
    """``length`` words, beginning with word number ``offset``."""
    words = WORDS[language]
    return " ".join(words[(offset + i) % len(words)] for i in range(length))


def encode(message: Sent) -> bytes:
    """A message's bytes as Python clients write them."""
    return json.dumps(message, ensure_ascii=False).encode()


def identity_of(raw: bytes) -> bytes:
    """Return the identity of a message."""
    return read_message(Content.of(raw)).identity


def user(content: object) -> Sent:
    return {"role": "user", "content": content}


def assistant(content: object) -> Sent:
    return {"role": "assistant", "content": content}


def system(content: object) -> Sent:
    return {"role": "system", "content": content}


def calling(*ids: str, content: object = None, arguments: str = '{"city": "Bern"}') -> Sent:
    calls = [
        {"id": call, "type": "function", "function": {"name": "look", "arguments": arguments}} for call in ids
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(call: str, content: object) -> Sent:
    return {"role": "tool", "tool_call_id": call, "content": content}


def counted(raw: bytes) -> int:
    return MESSAGE_TOKENS + count(Content.of(raw).countable())


def chain_from(messages: Sequence[Sent | bytes]) -> Chain:
    """Return a request's messages without the head as a chain, read and counted."""
    raws = [message if isinstance(message, bytes) else encode(message) for message in messages]
    read = [read_message(Content.of(raw)) for raw in raws]
    head = head_length([message.role for message in read])
    read, raws = read[head:], raws[head:]
    hashes = chain_hashes((message.identity for message in read), root_hash())
    return Chain(read, raws, Sizes.of(counted(raw) for raw in raws), hashes, CHAT)


def from_scratch(
    chain: Chain,
    policy: Policy,
    budget: Budget,
    count: Count,
    conditions: Conditions = UNKNOWN_CONDITIONS,
    pins: AbstractSet[bytes] = frozenset(),
) -> tuple[Plan, int]:
    """Return the plan of a chain from scratch, and the number of its epochs."""
    return plan_from_scratch(Situation(chain, EMPTY, policy, budget, count, conditions, pins=pins))


def oddities(view: Sequence[bytes]) -> Counter[tuple[str, bytes]]:
    """Count what the real API would refuse: results without a call before them, calls without results."""
    found: Counter[tuple[str, bytes]] = Counter()
    asked: set[str] = set()
    caller = b""
    for raw in [*view, b"{}"]:
        content = Content.of(raw)
        if content.role in ("tool", "function"):
            if asked.intersection(content.result_of):
                asked.difference_update(content.result_of)
            else:
                found["result without its call", raw] += 1
            continue
        if asked:
            found["call without its result", caller] += 1
        asked, caller = {call for call, _, _ in content.calls}, raw
    return found


# --- strategies ---

_lengths = st.one_of(st.integers(0, 12), st.integers(10, 120), st.integers(100, 600))
texts = st.builds(prose, st.sampled_from(sorted(WORDS)), _lengths, st.integers(0, 8))
short_texts = st.builds(prose, st.sampled_from(sorted(WORDS)), st.integers(0, 30), st.integers(0, 8))
huge_texts = st.builds(prose, st.sampled_from(["en", "ja"]), st.integers(500, 4000), st.integers(0, 8))
images = st.just({"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}})


def _as_part(text: str) -> Sent:
    return {"type": "text", "text": text}


contents = st.one_of(
    texts,
    texts,
    texts,
    st.lists(st.one_of(st.builds(_as_part, texts), images), min_size=1, max_size=3),
)
users = st.builds(user, contents)
answers = st.builds(assistant, texts)


@st.composite
def rounds(draw: st.DrawFn, results: st.SearchStrategy[str] = texts) -> list[Sent]:
    """Draw parallel tool calls and their results; ids may repeat those of earlier rounds."""
    ids = draw(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=3, unique=True))
    answered = draw(st.permutations(ids))
    said = draw(st.one_of(st.none(), short_texts))
    return [calling(*ids, content=said), *(result(call, draw(results)) for call in answered)]


@st.composite
def exchanges(draw: st.DrawFn) -> list[Sent]:
    """Draw a question, perhaps tool rounds, and the final answer; sometimes after a system message."""
    found: list[Sent] = [draw(users)]
    if draw(st.integers(0, 7)) == 0:
        found.insert(draw(st.integers(0, 1)), system(draw(short_texts)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2, 5]))):
        found += draw(rounds())
    return [*found, draw(answers)]


ends = st.one_of(
    users.map(lambda message: [message]),
    st.tuples(users, answers).map(list),
    st.tuples(users, rounds(), rounds()).map(lambda parts: [parts[0], *parts[1], *parts[2]]),
    st.tuples(users, rounds(huge_texts)).map(lambda parts: [parts[0], *parts[1]]),
)


@st.composite
def valid_conversations(draw: st.DrawFn, most: int = 12) -> list[Sent]:
    """Draw a conversation that the real API accepts: chats, agents, system messages, images, prefills."""
    heads: list[Sent] = draw(st.lists(st.builds(system, short_texts), max_size=2))
    body: list[list[Sent]] = draw(st.lists(exchanges(), min_size=1, max_size=most))
    return [*heads, *(message for part in body for message in part), *draw(ends)]


def _function_call(arguments: str) -> Sent:
    return {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "look", "arguments": arguments},
    }


def _function_result(content: str) -> Sent:
    return {"role": "function", "name": "look", "content": content}


def _unanswered(call: str, content: str) -> Sent:
    return calling(call, content=content)


def _narrator(content: str) -> Sent:
    return {"role": "narrator", "content": content}


_odd: st.SearchStrategy[Sent] = st.one_of(
    st.builds(result, st.sampled_from(["a", "b", "lost"]), texts),
    st.builds(_unanswered, st.sampled_from(["a", "b"]), short_texts),
    users,
    answers,
    st.builds(system, short_texts),
    st.builds(_function_result, texts),
    st.builds(_function_call, short_texts),
    st.builds(_narrator, short_texts),
    st.sampled_from(
        [
            {},
            {"role": "user"},
            {"role": "user", "content": None},
            {"role": 7, "content": 8},
            {"tool_calls": 1},
        ]
    ),
)


@st.composite
def odd_conversations(draw: st.DrawFn) -> list[Sent]:
    """Draw messages in any order, with an ordinary conversation among them."""
    found = draw(valid_conversations(most=5))
    for message in draw(st.lists(_odd, min_size=1, max_size=8)):
        found.insert(draw(st.integers(0, len(found))), message)
    return found


conversations = st.one_of(valid_conversations(), valid_conversations(), odd_conversations())


@st.composite
def budgets(draw: st.DrawFn, chain: Chain) -> Budget:
    """Draw a budget between far too small and just sufficient, with a ratio and a head."""
    whole = sum(chain.tokens)
    room = max(400, whole * draw(st.integers(10, 115)) // 100)
    head = draw(st.sampled_from([3, 50, 400]))
    ratio = draw(st.sampled_from([1.0, 1.25, 0.8]))
    return Budget(tokens=int((room + head) * ratio) + 1, ratio=ratio, head=head)


# --- what an engine does, with no world around it ---


def stage_at(chain: Chain, plan: Plan, policy: Policy, budget: Budget) -> Stage:
    return stage_of(budget.usage(view_tokens(plan, chain.tokens)), policy.stages)


@dataclass(frozen=True)
class Turn:
    """One request of a session."""

    chain: Chain
    stage: Stage
    """The stage before this request's edits."""
    begun: Draft | None
    before: Plan
    plan: Plan

    @property
    def view(self) -> list[bytes]:
        return apply(self.plan, self.chain.raws)

    @property
    def tokens(self) -> int:
        return view_tokens(self.plan, self.chain.tokens)


def turn(
    chain: Chain,
    plan: Plan,
    policy: Policy,
    budget: Budget,
    summary: str | None = None,
    past: Past = NO_PAST,
) -> Turn:
    """Make one request: a due epoch begins, with ``summary`` (if given) in each gap that wants one."""
    stage = stage_at(chain, plan, policy, budget)
    decided = draft_epoch(Situation(chain, plan, policy, budget, count, past=past), stage)
    if decided is None:
        return Turn(chain, stage, None, plan, plan)
    summaries = {} if summary is None else dict.fromkeys(decided.unsummarised_spans, summary)
    return Turn(chain, stage, decided, plan, finish(decided, summaries))


def session(chain: Chain, policy: Policy, budget: Budget, summary: str | None = None) -> Iterator[Turn]:
    """Yield every request that led to this chain, in order."""
    plan, past = EMPTY, NO_PAST
    for length in request_points(chain.messages):
        prefix = chain.prefix(length)
        if not prefix.keeps_open_part(plan):
            plan, past = (
                EMPTY,
                NO_PAST,
            )  # an odd late result belongs to a call that is cut: the engine's epoch does not hold
        done = turn(prefix, plan, policy, budget, summary, past)
        plan = done.plan
        past = past if done.begun is None else past.after(length, done.stage)
        yield done


def runs(situation: Situation, loose: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the messages of runs of adjacent units."""
    for _, run in groupby(enumerate(loose), key=lambda pair: pair[1] - pair[0]):
        units = [situation.units[index] for _, index in run]
        yield units[0].start, units[-1].end


def returned(before: Plan, after: Plan) -> set[int]:
    """Return the messages that one plan cuts and the next one does not."""
    return {place for gap in before.gaps for place in range(*gap.span) if not after.covers(place)}


def is_worth_a_note(situation: Situation, span: tuple[int, int]) -> bool:
    """Whether a notice is no longer than these messages, or they would only make a gap larger.

    A gap before them, whose note may stand with its ledger, would not become larger.
    """
    plan = situation.plan
    is_joined = plan.covers(span[1]) or (plan.covers(span[0] - 1) and not plan.ledger)
    return is_joined or is_no_longer(situation, gap_with_note(situation, span, (), ()))


def is_for_a_clip(before: Situation, plan: Plan, lost: AbstractSet[int]) -> bool:
    """Whether of what is protected a recent unit alone went, so that a note tells what a clip leaves out."""
    first = before.users[0] if before.users else len(before.chain)
    is_clipped_now = plan.edit_at(first) != before.plan.edit_at(first)
    return lost <= {FREE, RECENT} and is_clipped_now and not before.plan.gaps


def is_too_large(chain: Chain, policy: Policy, budget: Budget) -> bool:
    """Whether what is incompressible is over the budget by itself, its tool results clipped to the mark."""
    situation = Situation(chain, EMPTY, policy, budget, count)
    places = (
        place
        for index, level in situation.protection.items()
        if level == FIXED
        for place in range(situation.units[index].start, situation.units[index].end)
    )
    sizes = (
        min(chain.tokens[place], MARK_OF_A_CLIP) if is_clipped(chain, place) else chain.tokens[place]
        for place in places
    )
    return budget.head + sum(sizes) > budget.limit


def is_clipped(chain: Chain, place: int) -> bool:
    """Whether a message may be clipped though the model has still to answer it."""
    return place != last_user(chain.messages) and chain.messages[place].role in TOOL_ROLES


def is_reduced(chain: Chain, plan: Plan, policy: Policy, budget: Budget) -> bool:
    """Whether only what is incompressible is left in the view, and notes."""
    situation = Situation(chain, plan, policy, budget, count)
    loose = [index for index, level in situation.protection.items() if level != FIXED]
    if any(is_worth_a_note(situation, span) for span in runs(situation, loose)):
        return False
    asked = last_user(chain.messages)
    for place, message in enumerate(chain.messages):
        if plan.covers(place) or place == asked or message.role not in TOOL_ROLES:
            continue
        if situation.size_at(place) > MARK_OF_A_CLIP:
            return False
    return True


def fits(chain: Chain, plan: Plan, budget: Budget) -> bool:
    return budget.head + view_tokens(plan, chain.tokens) <= budget.limit


def is_bounded(chain: Chain, plan: Plan, policy: Policy, budget: Budget) -> bool:
    """Whether a view fits the budget, or only what alone is over it is left, and notes (law 4)."""
    if fits(chain, plan, budget):
        return True
    return is_too_large(chain, policy, budget) and is_reduced(chain, plan, policy, budget)
