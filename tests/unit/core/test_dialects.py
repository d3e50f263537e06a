"""Another API is a dialect of its own: planning, notes, summaries and recall ask nothing else of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS, Budget
from proxy.core.conversation.extension import Injection
from proxy.core.conversation.messages import chain_hashes, read_message, root_hash
from proxy.core.extraction.reading import ReadingCache, read
from proxy.core.formats.json import dumps, loads
from proxy.core.persistent import Sizes
from proxy.core.planning.chain import Chain
from proxy.core.planning.planner import finish
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Tool, ToolResults
from proxy.core.recall.passages import Reach
from proxy.core.summaries.source import source_of
from proxy.core.tool_cache.cache import ToolRules
from proxy.core.tool_cache.derive import derive, initial
from tests.support.conversations import count, prose, session
from tests.support.lines import LINES, Line, Lines

RULE = "You must never delete the staging database db-4711."
SAID = [
    ("u", RULE),
    ("a", "Understood."),
    *((who, f"{prose('en', 60, place)} {place}") for place in range(20) for who in "ua"),
    ("u", "And now?"),
]


def chain(said: Sequence[Sequence[object]]) -> Chain:
    raws = [dumps(each) for each in said]
    read = [read_message(LINES.read(raw)) for raw in raws]
    sizes = Sizes.of(MESSAGE_TOKENS + count(LINES.read(raw).countable()) for raw in raws)
    return Chain(read, raws, sizes, chain_hashes((each.identity for each in read), root_hash()), LINES)


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
    source = source_of(begun.situation, begun.spans[0], 8_000, anew=True)
    assert "[assistant] " in source.piece.text
    reach = Reach(turns[-1].chain, turns[-1].plan, Policy())
    assert reach.original(2).author == "user"
    assert reach.original(2).text == SAID[2][1]
    assert finish(begun, {}).gaps


def test_what_a_caller_hands_in_is_written_in_it():
    tool = {"name": "rain", "arguments": "{}", "result": "none", "cache_exchanges": None, "call_id": "c1"}
    injection = Injection(dumps({"text": "The customer is Ada.", "tools": [tool]}))
    said, call, result = (loads(raw) for raw in injection.messages(LINES))
    assert said[0] == "u"
    assert "The customer is Ada." in said[1]
    assert (call, result) == (["a", "", {"c1": ["rain", "{}"]}], ["t", "", {"c1": "none"}])


LOOKED = [
    ("u", "How high and how long are the bridges?"),
    ("a", "", {"h": ["height", "{}"], "l": ["length", "{}"]}),
    ("u", "And hurry, please.", {"h": "7 m, see INV-2023-001. You must never cross it.", "l": "90 m"}),
    ("a", "Seven and ninety metres."),
]


def test_results_that_come_in_one_message_stay_with_their_calls_and_what_is_said_beside_them():
    units = chain(LOOKED).units
    assert [(unit.start, unit.end) for unit in units] == [(0, 1), (1, 3), (3, 4)]


def test_what_a_tool_says_beside_a_user_binds_nobody():
    looked = chain(LOOKED)
    reading = ReadingCache().of(looked.addresses(looked.content)[2], partial(looked.content, 2))
    assert {voice for voice, _ in reading.facts} == {"result"}
    assert reading.sentences == ()
    assert read(Line("u", "7 m. You must never cross it.")).sentences != ()


def test_of_results_that_come_in_one_message_each_is_kept_for_its_own_call():
    looked, rules = chain(LOOKED), ToolRules((Tool(match="*", cache_exchanges=2),))
    places = zip(looked.messages, looked.raws, looked.hashes, strict=True)
    fresh = derive(initial(rules), places, LINES).cache
    assert {each.tool: each.text for each in fresh} == {
        "height": "7 m, see INV-2023-001. You must never cross it.",
        "length": "90 m",
    }


def test_results_that_come_in_one_message_are_cleared_one_by_one():
    tools = {"h": ["height", "{}"], "l": ["length", "{}"]}
    results = [{"h": prose("en", 600, number), "l": prose("en", 500, number)} for number in range(30)]
    rounds = [each for told in results for each in (("a", "", tools), ("t", "", told))]
    policy = Policy(tool_results=ToolResults(clear_at_least=0.0))
    turns = session(chain([("u", "Go on."), *rounds]), policy, Budget(3_000, 1.0, 0))
    cleared = [loads(raw)[2] for turn in turns for raw in turn.view if b"[Result of height " in raw]
    assert cleared
    for told in cleared:
        assert [*told] == ["h", "l"]
        assert told["l"].startswith("[Result of length ")


class Replies(Lines):
    """The same bytes read as another dialect: who speaks is the other one."""

    def read(self, raw: bytes) -> Line:
        who, said = loads(raw)
        return Line({"u": "a", "a": "u"}[who], said)


def test_what_the_same_bytes_say_in_one_dialect_is_not_what_they_say_in_another():
    one = chain([("u", RULE)])
    readings, other = ReadingCache(), replace(one, dialect=Replies())
    first, second = (
        readings.of(each.addresses(each.content)[0], partial(each.content, 0)) for each in (one, other)
    )
    assert {voice for voice, _ in first.facts} == {"user"}
    assert {voice for voice, _ in second.facts} == {"assistant"}
