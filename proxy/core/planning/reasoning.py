"""Which messages are sent without their signed reasoning: keeps law 9 (reasoning under its own prefix).

A provider accepts signed reasoning only after exactly the bytes that preceded it when it was made: tools,
system messages and all earlier messages. An epoch changes these from its first edit on. Reasoning made before
the epoch began is left out of messages after that edit; reasoning made later fits the new view. The epoch
stores the positions of these messages, so that every worker leaves out the same. An epoch of such a session
is in force only for chains with all of these messages: a branch that forked earlier continues unchanged.
"""

from collections.abc import Iterable, Sequence

from proxy.core.dialects.dialect import Dialect
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Plan, first_difference


def signed_in(chain: Chain, start: int = 0) -> list[int]:
    """Positions, from ``start`` on, of messages that are sent with signed reasoning."""
    holds = chain.dialect.holds_signed_reasoning
    return [place for place in range(start, len(chain)) if any(map(holds, chain.sent_for(place)))]


def first_change(before: Plan, after: Plan) -> int | None:
    """Return the first position at which the views of two plans differ; None if they are equal.

    It is 0 if exactly one plan is empty, because the request then gains or loses our own tool.
    """
    if EMPTY in (before, after):
        return None if before == after else 0
    return first_difference(before, after)


def without_reasoning(messages: Sequence[bytes], places: Iterable[int], dialect: Dialect) -> Sequence[bytes]:
    """Return the messages, those at ``places`` without their signed reasoning."""
    edited = [*messages]
    for place in places:
        if place >= len(edited):  # the request is answered again and lacks messages that the epoch saw
            continue
        edited[place] = dialect.without_reasoning(edited[place])
    return edited


def is_amid_reasoning(chain: Chain) -> bool:
    """Whether the chain ends with tool results, and the open turn has signed reasoning."""
    if not chain.messages or not chain.messages[-1].is_result:
        return False
    user = chain.last_user
    return bool(signed_in(chain, 0 if user is None else user + 1))
