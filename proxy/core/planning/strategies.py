"""Strategies: when an epoch begins, which units go in which order, and what the note says of them.

A strategy is a pure function of the situation (law 3): no clock, no chance, no memory of its own. What it may
know of the world stands in ``situation.conditions``. Whatever it says, tool calls keep their results and what
the model is still to answer stays (law 2), and the view fits the budget (law 4):
:mod:`proxy.core.planning.selection` and :mod:`proxy.core.planning.planner` see to that.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace

from proxy.core.budget.budget import Stage
from proxy.core.conversation.messages import HEAD_ROLES, last_user
from proxy.core.conversation.units import exchanges_of, request_points
from proxy.core.planning.chain import Chain
from proxy.core.planning.life import WITHIN
from proxy.core.planning.running_summary import RunningSummary
from proxy.core.planning.situation import CRITICAL, FREE, PINNED, Situation
from proxy.core.policy import values
from proxy.core.policy.policy import Policy
from proxy.core.text.similarity import Likeness, Similarity, Vectors, tfidf
from proxy.core.text.words import size


class Strategy(ABC):
    """A rule that chooses what goes. It sees everything, and changes nothing.

    Three methods make one. The others are for strategies that act at any usage, or that write notes.
    """

    by_usage: ClassVar[bool] = False
    """Whether it is due by usage alone, from *trim* on: below that nobody need ask it."""
    slides: ClassVar[bool] = False
    """Whether the chain's end alone decides what it keeps: it acts at nearly every request, and a chain
    without a plan need not be played from its start."""

    @abstractmethod
    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """Whether an epoch should begin now; asked at every request, so it must be quick."""

    @abstractmethod
    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Indexes of ``situation.units`` that may be cut, in the order in which they go."""

    @abstractmethod
    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Whether cutting may stop: ``view`` and ``goal`` in counted tokens. Asked before each unit."""

    def acts_now(self, situation: Situation) -> bool:
        """Whether it is due for another reason than usage.

        Such an epoch begins at once, however little it frees, and may wait for its summaries.
        """
        return False

    def turning_points(self, chain: Chain, policy: Policy) -> Collection[int]:
        """Lengths of this chain's past at which ``acts_now`` held, for a chain without a plan."""
        return ()

    def condensed(self, situation: Situation) -> Sequence[int]:
        """Indexes of ``situation.units`` that go without their requests; notes behind these tell of them."""
        return ()

    def ahead(self, situation: Situation) -> Situation | None:
        """The situation as it will be when its next epoch begins, where that is with the next exchange.

        What that cuts is summarised now. Asked at every request, so it must be quick.
        """
        return None

    def record(self, situation: Situation, start: int, end: int) -> RunningSummary | None:
        """What it writes of messages ``start`` up to ``end`` itself, where it does; a model only shortens."""
        return None

    def wants_summary(self, situation: Situation, start: int, end: int) -> bool:
        """Whether a model should be asked about messages ``start`` up to ``end``, which are cut."""
        return True

    def words(self, situation: Situation, start: int, end: int, summary: str | None) -> str | None:
        """What a note says of messages ``start`` up to ``end``; None: only how many they are.

        ``summary`` is what a model wrote about them, None where it wrote nothing.
        """
        return summary


class Off(Strategy):
    """No epoch ever begins."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """Never."""
        return False

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Nothing may go."""
        return ()

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Always."""
        return True


class ByImportance(Strategy):
    """The least important first."""

    by_usage = True

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """From *trim* on."""
        return stage in (Stage.TRIM, Stage.COMPACT, Stage.EMERGENCY)

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Unprotected units, the least important first, of equal ones the oldest."""
        scored = (
            (situation.score(index).total, index)
            for index in situation.standing
            if situation.protection[index] == FREE
        )
        return [index for _, index in sorted(scored)]

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """At the goal."""
        return view <= goal


class SlidingWindow(Strategy):
    """Keep the newest messages, ``strategy.last`` of them, in whole units; at any usage."""

    slides = True

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """When a unit has slid out of the window, and always where the budget is passed."""
        return stage is Stage.EMERGENCY or self.acts_now(situation)

    def acts_now(self, situation: Situation) -> bool:
        """When a unit has slid out of the window."""
        return bool(self.order(situation, Stage.CALM))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Standing units that do not fit among the newest ``last`` messages, oldest first; pins stay."""
        left, outside = situation.policy.strategy.last, list[int]()
        if len(situation.chain) - situation.plan.cut <= left:
            return outside
        for index in reversed(situation.standing):
            left -= situation.units[index].count
            if left < 0 and situation.protection[index] < CRITICAL:
                outside.append(index)
        return outside[::-1]

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Never before the window is as small as it should be."""
        return False


class Session(ByImportance):
    """After a pause over ``strategy.idle``, or where the client says so, all before goes, at any usage."""

    by_usage = False

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """At a boundary with something before it; else from *trim* on."""
        if _begins_anew(situation):
            return stage is Stage.EMERGENCY or bool(_past(situation))
        return super().is_due(situation, stage)

    def acts_now(self, situation: Situation) -> bool:
        """At a boundary."""
        return _begins_anew(situation) and bool(_past(situation))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """At a boundary all that lies before it, oldest first."""
        return _past(situation) if _begins_anew(situation) else super().order(situation, stage)

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """At a boundary when nothing of the past is left."""
        return not _begins_anew(situation) and super().is_enough(situation, view, goal)


def _begins_anew(situation: Situation) -> bool:
    conditions = situation.conditions
    if conditions.boundary:
        return True
    if conditions.idle is None or conditions.idle <= situation.policy.strategy.idle:
        return False
    # A person must have spoken: a tool that took long is no pause.
    messages = situation.chain.messages
    last = len(messages) - 1
    if last > 0 and messages[last].is_final:  # a prefill
        last -= 1
    return last >= 0 and situation.role(last) == "user"


def _past(situation: Situation) -> list[int]:
    """Standing units that came before the newest request, pinned and later system messages apart."""
    messages = situation.chain.messages
    start = last_user(messages) or 0
    while start and messages[start - 1].role in ("user", *HEAD_ROLES):
        start -= 1
    return [
        index
        for index in situation.standing
        if situation.units[index].end <= start and situation.protection[index] < CRITICAL
    ]


NOW = 2
"""The newest exchanges, which say what the conversation is about now."""
ALIKE = 0.1
"""Likeness from which an exchange goes on with a topic (by TF-IDF, unrelated exchanges are below 0.05)."""
_COMPARED = 4
"""The newest exchanges of a topic, with which the next one is compared."""
_CHARACTERS = 4_000
"""Of each message, what is read to know its topic."""


class Topic(ByImportance):
    """Cut what is about something else first: clusters of exchanges, the farthest from now before the others.

    By tokens, as importance is: at *trim* only other topics; from *compact* on today's own as well.
    """

    def __init__(self, similarity: Similarity = tfidf) -> None:
        self._similarity = similarity

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Unprotected units, the farthest topic first, each from its oldest exchange on."""
        exchanges = exchanges_of(situation.chain.begun, situation.units, situation.standing)
        alike = self._similarity(
            [
                "\n".join(
                    situation.content(place).text[:_CHARACTERS]
                    for index in exchange
                    for place in range(situation.units[index].start, situation.units[index].end)
                )
                for exchange in exchanges
            ]
        )
        newest = range(max(len(exchanges) - NOW, 0), len(exchanges))

        def nearness(topic: Sequence[int]) -> float:
            """How near it is to now: the mean of its exchanges' likeness to the newest ones."""
            return sum(max(alike(place, new) for new in newest) for place in topic) / len(topic)

        topics = sorted(_topics(len(exchanges), alike), key=lambda topic: (nearness(topic), topic[-1]))
        if stage is Stage.TRIM:
            topics = [topic for topic in topics if topic[-1] not in newest]
        return [
            index
            for topic in topics
            for place in topic
            for index in sorted(exchanges[place], key=situation.is_user)
            if situation.protection[index] == FREE
        ]


def _topics(count: int, alike: Likeness) -> list[list[int]]:
    """Exchanges by topic: each goes on with the topic that it is most like, or begins one.

    Where likeness follows from shared words, it is compared with topics alone that share enough of them.
    """
    topics: list[list[int]] = []
    by_term: dict[str, set[int]] = {}
    for place in range(count):
        numbers: Iterable[int] = range(len(topics))
        if isinstance(alike, Vectors):
            sharing = (by_term.get(term, ()) for term in alike.telling(place, ALIKE))
            numbers = sorted({number for each in sharing for number in each})
        likest, found = ALIKE, None
        for number in numbers:
            likeness = max(alike(place, member) for member in topics[number][-_COMPARED:])
            if likeness >= likest:
                likest, found = likeness, number
        if found is None:
            found = len(topics)
            topics.append([])
        topics[found].append(place)
        for term in alike.terms(place) if isinstance(alike, Vectors) else ():
            by_term.setdefault(term, set()).add(found)
    return topics


class Exchanges(Strategy):
    """A rolling window: past ``strategy.exchanges`` of them, all exchanges but the newest ``roll_to`` go.

    With ``strategy.condense_active`` the long answers of those that stay give way to notes at the same time.
    """

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """When there are too many exchanges, and always where the budget is passed."""
        return stage is Stage.EMERGENCY or self.acts_now(situation)

    def acts_now(self, situation: Situation) -> bool:
        """When there are too many exchanges."""
        return bool(_rolled(situation))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """The units of the exchanges that roll, oldest first."""
        return _rolled(situation)

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Never before all of them have rolled."""
        return False

    def condensed(self, situation: Situation) -> Sequence[int]:
        """The answers that are long and stay, but for pinned ones and such as a note would hardly shorten."""
        rules, rolled = situation.policy.strategy, set(_rolled(situation))
        if not (rules.condense_active and rolled):
            return ()
        least = max(rules.answer_max, rules.answer_to + _AROUND)
        return [
            index
            for index in situation.standing
            if index not in rolled
            and situation.protection[index] < CRITICAL
            and situation.chain.messages[place := situation.units[index].start].is_final
            and situation.classes.may_be_summarised(place)
            and size(situation.content(place).text.strip()) > least
        ]

    def ahead(self, situation: Situation) -> Situation | None:
        """With one exchange less to roll, and one less that stays, where the window is full."""
        rules = situation.policy.strategy
        if rules.roll_to < 2 or _count(situation) < rules.exchanges:
            return None
        soon = {"exchanges": rules.exchanges - 1, "roll_to": rules.roll_to - 1}
        policy = situation.policy.model_copy(update={"strategy": rules.model_copy(update=soon)})
        return replace(situation, policy=policy)

    def turning_points(self, chain: Chain, policy: Policy) -> Collection[int]:
        """The requests at which there was one exchange too many."""
        rules, standing = policy.strategy, 0
        points = request_points(chain.messages)
        found: set[int] = set()
        for position in chain.begun:
            standing += 1
            if standing > rules.exchanges:
                found.add(points[bisect_right(points, position)])
                standing = rules.roll_to
        return found

    def record(self, situation: Situation, start: int, end: int) -> RunningSummary | None:
        """The exchanges as they went."""
        return RunningSummary.of(situation, start, end)

    def wants_summary(self, situation: Situation, start: int, end: int) -> bool:
        """Where code would leave something out."""
        return not RunningSummary.of(situation, start, end).is_whole

    def words(self, situation: Situation, start: int, end: int, summary: str | None) -> str | None:
        """The model's summary, if it is no longer than it may be; else the record that code makes."""
        running = RunningSummary.of(situation, start, end)
        return summary if summary and size(summary) <= running.room else running.text({}) or None


_AROUND = 300
"""Bytes of a note beside the answer that it tells, about."""


def _count(situation: Situation) -> int:
    """The exchanges of the view, those of which anything is pinned among them; quick."""
    begun = situation.chain.begun
    gone = (bisect_left(begun, gap.end) - bisect_left(begun, gap.start) for gap in situation.plan.gaps)
    return len(begun) - sum(gone)


def _rolled(situation: Situation) -> list[int]:
    """Standing units of the exchanges that roll, pinned and later system messages apart."""
    rules = situation.policy.strategy
    if _count(situation) <= rules.exchanges:
        return []
    protection = situation.protection
    movable = (index for index in situation.standing if protection[index] not in (CRITICAL, PINNED))
    standing = exchanges_of(situation.chain.begun, situation.units, movable)
    if len(standing) <= rules.exchanges:
        return []
    old = standing[: -rules.roll_to]
    return [index for exchange in old for index in exchange if protection[index] < CRITICAL]


class ByUnits(Strategy):
    """Epochs by count: ``stages.max_units`` units since the last one begin another at any usage.

    Counted is what stands in the view and was answered after that epoch began, whatever began it, but for
    what is pinned or critical. Such an epoch cuts all that may be cut; the newest units stay,
    and are a share of what the view holds, not of the budget, which may be many times as large.
    """

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """When so many came since; quick while there are not."""
        most = situation.policy.stages.max_units
        if not most or situation.policy.strategy.name == "off":
            return False
        return units_since(situation, most) >= most

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Everything unprotected."""
        return [index for index in situation.standing if situation.protection[index] == FREE]

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Never before all is gone."""
        return False


BY_UNITS = ByUnits()


def units_since(situation: Situation, least: int = 0) -> int:
    """Units of the view that were answered since the last epoch, but for pinned and critical ones.

    0 where there are fewer than ``least``, so that no content is read for that.
    """
    since = situation.conditions.since
    # The unit that ends where the epoch began was still to be answered then.
    if sum(unit.end >= since for unit in reversed(situation.chain.units)) < least:
        return 0
    new = [index for index in situation.standing if situation.units[index].end >= since]
    return sum(situation.protection[index] < CRITICAL for index in new) if len(new) >= least else 0


def has_waited(situation: Situation) -> bool:
    """Whether an epoch by count has waited for its summaries as long as it may."""
    return units_since(situation) >= situation.policy.stages.max_units + WITHIN


STRATEGIES: Mapping[str, Strategy] = {
    "importance": ByImportance(),
    "sliding_window": SlidingWindow(),
    "session": Session(),
    "topic": Topic(),
    "exchanges": Exchanges(),
    "off": Off(),
}
"""Those that are built in."""


def acts_by_usage(policy: Policy) -> bool:
    """Whether nothing but usage makes an epoch due."""
    return not policy.stages.max_units and strategy_of(policy.strategy.name).by_usage


def strategy_of(name: str) -> Strategy:
    """The strategy of a policy, built in or added. Raises KeyError, which a checked policy cannot cause."""
    return STRATEGIES[name] if name in STRATEGIES else values.STRATEGIES[name]
