"""The built-in strategies, and the lookup of built-in and added strategies by the name in a policy."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter

from proxy.core.budget.budget import Stage
from proxy.core.conversation.messages import HEAD_ROLES
from proxy.core.conversation.units import exchanges_of
from proxy.core.planning.exchanges import Exchanges
from proxy.core.planning.life import GRACE_UNITS
from proxy.core.planning.situation import CRITICAL, FREE, Situation
from proxy.core.planning.strategy import ByCount, Strategy
from proxy.core.policy import values
from proxy.core.text.similarity import Vectors, tfidf


class Off(Strategy):
    """No epoch ever begins."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        return False

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        return ()

    def is_enough(self, situation: Situation, view_tokens: int, goal: int) -> bool:
        return True


class ByImportance(Strategy):
    """Cut the least important units first."""

    by_usage = True

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        return stage in (Stage.TRIM, Stage.COMPACT, Stage.EMERGENCY)

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Unprotected units, the least important first, and the oldest first among equals."""
        scored = (
            (situation.score(index).total, index)
            for index in situation.view_units
            if situation.protection[index] == FREE
        )
        return [index for _, index in sorted(scored)]

    def is_enough(self, situation: Situation, view_tokens: int, goal: int) -> bool:
        return view_tokens <= goal


class SlidingWindow(ByCount):
    """Keep the newest ``strategy.last`` messages, in whole units, at any usage."""

    slides = True

    def acts_now(self, situation: Situation) -> bool:
        return bool(self.order(situation, Stage.CALM))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Units of the view outside the newest ``last`` messages, oldest first.

        Pinned and critical units are not among them.
        """
        left, outside = situation.policy.strategy.last, list[int]()
        if len(situation.chain) - situation.plan.cut <= left:
            return outside
        for index in reversed(situation.view_units):
            left -= situation.units[index].count
            if left < 0 and situation.protection[index] < CRITICAL:
                outside.append(index)
        return outside[::-1]


class Session(ByImportance):
    """Cut everything before a boundary, at any usage; otherwise act as importance does.

    A boundary is a pause of more than ``strategy.idle`` seconds, or where the client says so.
    """

    by_usage = False

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """Whether there is a boundary with something before it; without a boundary, from *trim* on."""
        if _begins_anew(situation):
            return bool(_units_before_request(situation))
        return super().is_due(situation, stage)

    def acts_now(self, situation: Situation) -> bool:
        return _begins_anew(situation) and bool(_units_before_request(situation))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """At a boundary, all units before it, oldest first."""
        return (
            _units_before_request(situation) if _begins_anew(situation) else super().order(situation, stage)
        )

    def is_enough(self, situation: Situation, view_tokens: int, goal: int) -> bool:
        """At a boundary never, so that everything before it is cut; else once the goal is reached."""
        return not _begins_anew(situation) and super().is_enough(situation, view_tokens, goal)


def _begins_anew(situation: Situation) -> bool:
    conditions = situation.conditions
    if conditions.boundary:
        return True
    if conditions.pause is None or conditions.pause <= situation.policy.strategy.idle:
        return False
    # Only a user's message ends a pause: a tool that took long is no pause.
    messages = situation.chain.messages
    last = len(messages) - 1
    if last > 0 and messages[last].is_final:  # a prefill
        last -= 1
    return last >= 0 and situation.role(last) == "user"


def _units_before_request(situation: Situation) -> list[int]:
    """Units of the view before the newest request, without pinned or critical ones.

    System messages directly before the request belong to it.
    """
    messages = situation.chain.messages
    start = situation.chain.last_user or 0
    while start and messages[start - 1].role in ("user", *HEAD_ROLES):
        start -= 1
    return [
        index
        for index in situation.view_units
        if situation.units[index].end <= start and situation.protection[index] < CRITICAL
    ]


_CURRENT_EXCHANGES = 2
"""Number of newest exchanges that define what the conversation is about now."""
_ALIKE = 0.1
"""Similarity from which an exchange continues a topic (by TF-IDF, unrelated exchanges are below 0.05)."""
_COMPARED = 4
"""Number of newest exchanges of a topic with which the next one is compared."""
_CHARACTERS = 4_000
"""Number of leading characters of each message from which its topic is derived."""


class Topic(ByImportance):
    """Cluster exchanges into topics, and cut those first that are least similar to the current one.

    It acts by usage, as importance does: at *trim* it cuts only other topics, from *compact* on also the
    current one.
    """

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Unprotected units, the least similar topic first, and within a topic the oldest exchange first."""
        exchanges = exchanges_of(situation.chain.exchange_starts, situation.units, situation.view_units)
        alike = tfidf(
            [
                "\n".join(
                    situation.content(place).text[:_CHARACTERS]
                    for index in exchange
                    for place in range(situation.units[index].start, situation.units[index].end)
                )
                for exchange in exchanges
            ]
        )
        newest = range(max(len(exchanges) - _CURRENT_EXCHANGES, 0), len(exchanges))

        def nearness(topic: Sequence[int]) -> float:
            """The mean similarity of a topic's exchanges to the newest exchanges (the best match counts)."""
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


def _topics(count: int, alike: Vectors) -> list[list[int]]:
    """Group exchanges by topic: each joins the topic that it is most similar to, or begins a new one.

    An exchange is compared only with topics that share enough words.
    """
    topics: list[list[int]] = []
    by_term: dict[str, set[int]] = {}
    for place in range(count):
        sharing = (by_term.get(term, ()) for term in alike.prefix(place, _ALIKE))
        likest, found = _ALIKE, None
        for number in sorted({number for each in sharing for number in each}):
            likeness = max(alike(place, member) for member in topics[number][-_COMPARED:])
            if likeness >= likest:
                likest, found = likeness, number
        if found is None:
            found = len(topics)
            topics.append([])
        topics[found].append(place)
        for term in alike.terms(place):
            by_term.setdefault(term, set()).add(found)
    return topics


class ByUnits(ByCount):
    """Epochs by count: ``stages.max_units`` units since the last epoch begin the next, at any usage.

    This counts units of the view that were answered after the last epoch of any cause began, without pinned
    and critical ones. Such an epoch cuts every unprotected unit. The newest units that stay are a share of
    the view's tokens, not of the budget, which may be many times as large.
    """

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """Whether ``max_units`` units were added since the last epoch; quick while there are fewer."""
        most = situation.policy.stages.max_units
        if not most or situation.policy.strategy.name == "off":
            return False
        return _units_since(situation, most) >= most

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        return [index for index in situation.view_units if situation.protection[index] == FREE]


BY_UNITS = ByUnits()


def _units_since(situation: Situation, least: int = 0) -> int:
    """Count units of the view answered since the last epoch, without pinned and critical ones.

    Returns 0 if there are fewer than ``least`` new units, so that no content is read to count them.
    """
    since = situation.conditions.since
    # The unit that ends where the epoch began had not been answered then, so it counts.
    units = situation.chain.units
    if len(units) - bisect_left(units, since, key=attrgetter("end")) < least:
        return 0
    new = [index for index in situation.view_units if situation.units[index].end >= since]
    return sum(situation.protection[index] < CRITICAL for index in new) if len(new) >= least else 0


def has_waited(situation: Situation) -> bool:
    """Whether an epoch by count has waited for its summaries for as long as it may."""
    return _units_since(situation) >= situation.policy.stages.max_units + GRACE_UNITS


STRATEGIES: Mapping[str, Strategy] = {
    "importance": ByImportance(),
    "sliding_window": SlidingWindow(),
    "session": Session(),
    "topic": Topic(),
    "exchanges": Exchanges(),
    "off": Off(),
}


@cache  # called on every calm turn
def acts_by_usage(strategy: str) -> bool:
    """Whether only usage makes an epoch of a strategy due."""
    return strategy_of(strategy).by_usage


def strategy_of(name: str) -> Strategy:
    """Return a strategy, built in or added, by name. Raises KeyError, which a checked policy cannot cause."""
    return STRATEGIES[name] if name in STRATEGIES else values.STRATEGIES[name]
