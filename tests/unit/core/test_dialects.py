"""Another API is a dialect of its own: planning, notes, summaries and recall ask nothing else of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS, Budget
from proxy.core.conversation.extension import Injection
from proxy.core.conversation.messages import chain_of, read_message, root
from proxy.core.dialects.dialect import Content, Dialect
from proxy.core.extraction.reading import Readings
from proxy.core.formats.json import dumps, loads
from proxy.core.persistent import Sizes
from proxy.core.planning.chain import Chain
from proxy.core.planning.planner import finish
from proxy.core.policy.policy import Policy
from proxy.core.recall.passages import Reach
from proxy.core.summaries.source import originals_of
from tests.support.conversations import count, prose, session

ROLES = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}


class Line(Content):
    """A message of a toy dialect, written as ``["u", "text"]``."""

    def __init__(self, who: str, said: str) -> None:
        self.who, self.said = who, said
        self.role, self.parts = ROLES[who], [{"text": said}]

    def with_texts(self, texts: Sequence[str]) -> Line:
        return Line(self.who, "".join(texts))

    def with_text(self, text: str) -> Line:
        return Line(self.who, text)

    def written(self) -> bytes:
        return dumps([self.who, self.said])


class Lines:
    """The toy dialect."""

    def read(self, raw: bytes) -> Line:
        return Line(*loads(raw))

    def may_hold_pictures(self, raw: bytes) -> bool:
        return False

    def note(self, text: str, role: str) -> bytes:
        return Line(role[0], text).written()

    def call(self, call_id: str, name: str, arguments: str) -> bytes:
        return Line("a", f"{call_id} {name} {arguments}").written()

    def result(self, call_id: str, text: str) -> bytes:
        return Line("t", f"{call_id} {text}").written()

    def alternating(
        self, view: Sequence[bytes], notes: Collection[int], prelude: Sequence[bytes] = ()
    ) -> list[bytes]:
        return [*prelude, *view]


TOY: Dialect = Lines()
RULE = "You must never delete the staging database db-4711."
SAID = [
    ("u", RULE),
    ("a", "Understood."),
    *((who, f"{prose('en', 60, place)} {place}") for place in range(20) for who in "ua"),
    ("u", "And now?"),
]


def chain(said: Sequence[tuple[str, str]]) -> Chain:
    raws = [dumps(each) for each in said]
    read = [read_message(TOY.read(raw)) for raw in raws]
    sizes = Sizes.of(MESSAGE_TOKENS + count(TOY.read(raw).countable()) for raw in raws)
    return Chain(read, raws, sizes, chain_of((each.identity for each in read), root()), TOY)


def test_a_conversation_is_planned_cut_and_noted_in_its_own_words():
    turns = list(session(chain(SAID), Policy(), Budget(1_000, 1.0, 0), summary="They spoke of rivers."))
    last = turns[-1]
    assert last.plan.gaps
    assert last.tokens <= 1_000
    kept = [raw for raw in last.view if raw in last.chain.raws]
    notes = [raw for raw in last.view if raw not in last.chain.raws]
    assert kept == [raw for raw in last.chain.raws if raw in kept]
    assert kept[-1] == dumps(SAID[-1])
    assert len(notes) == len(last.plan.gaps)
    for raw in notes:
        who, text = loads(raw)
        assert who == "u"
        assert text.startswith("<note ")
    assert any("They spoke of rivers." in loads(raw)[1] for raw in notes)
    assert any(RULE in loads(raw)[1] for raw in last.view)


def test_what_is_too_long_is_clipped_in_its_own_words():
    long = [("u", "Hello"), ("a", "Hi"), ("u", prose("en", 4_000)), ("a", "Yes"), ("u", "And now?")]
    *_, last = session(chain(long), Policy(), Budget(400, 1.0, 0))
    shown = [loads(raw) for raw in last.view]
    assert [who for who, _ in shown][-1] == "u"
    assert last.tokens <= 400
    assert shown[-1] == ["u", "And now?"]


def test_summaries_and_recall_read_it():
    turns = list(session(chain(SAID), Policy(), Budget(1_000, 1.0, 0)))
    begun = next(turn.begun for turn in turns if turn.begun is not None)
    source = originals_of(begun.situation, begun.spans[0], 8_000)
    assert "[assistant] " in source.whole.text
    reach = Reach(turns[-1].chain, turns[-1].plan, Policy())
    assert reach.original(2).author == "user"
    assert reach.original(2).text == SAID[2][1]
    assert finish(begun, {}).gaps


def test_what_a_caller_hands_in_is_written_in_it():
    tool = {"name": "rain", "arguments": "{}", "result": "none", "cache_exchanges": None, "call_id": "c1"}
    injection = Injection(dumps({"text": "The customer is Ada.", "tools": [tool]}))
    said, call, result = (loads(raw) for raw in injection.messages(TOY))
    assert said[0] == "u"
    assert "The customer is Ada." in said[1]
    assert (call, result) == (["a", "c1 rain {}"], ["t", "c1 none"])


class Replies(Lines):
    """The same bytes read as another dialect: who speaks is the other one."""

    def read(self, raw: bytes) -> Line:
        who, said = loads(raw)
        return Line({"u": "a", "a": "u"}[who], said)


def test_what_the_same_bytes_say_in_one_dialect_is_not_what_they_say_in_another():
    one = chain([("u", RULE)])
    readings, other = Readings(), replace(one, dialect=Replies())
    first, second = (
        readings.of(each.addresses(each.content)[0], partial(each.content, 0)) for each in (one, other)
    )
    assert {voice for voice, _ in first.facts} == {"user"}
    assert {voice for voice, _ in second.facts} == {"assistant"}
