"""Which messages go out without their signed reasoning: keeps law 9 (reasoning under its own prefix).

A provider that signs reasoning takes it back only behind the very bytes that it was made behind: tools,
system messages, and all messages before it. An epoch changes these from its first edit on. What was made
before it began, and stands behind that edit, goes out without; what is made after it fits the new view.
Which messages these are stands in the epoch, so that every worker leaves out the same, and an epoch of such a
session is in force only where all of them are there: a branch that left earlier goes on as it was.
"""

from collections.abc import Iterable, Sequence

from proxy.core.dialects.dialect import Dialect
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Plan, first_difference


def signed_in(chain: Chain, start: int = 0) -> list[int]:
    """Positions, from ``start`` on, of messages with signed reasoning."""
    holds, raws = chain.dialect.holds_signed_reasoning, chain.raws
    return [place for place in range(start, len(chain)) if holds(raws[place])]


def first_change(before: Plan, after: Plan) -> int | None:
    """Where the views of two plans begin to differ; None where they do not.

    The first edits and the loss of all of them change more than messages: a tool of ours comes, or goes.
    """
    if EMPTY in (before, after):
        return None if before == after else 0
    return first_difference(before, after)


def without_reasoning(messages: Sequence[bytes], places: Iterable[int], dialect: Dialect) -> Sequence[bytes]:
    """The messages, those at some places (as far as they are there) without their signed reasoning."""
    edited = [*messages]
    for place in places:
        if place >= len(edited):  # answered anew: what an epoch on request saw after that is not there
            continue
        edited[place] = dialect.without_reasoning(edited[place])
    return edited


def is_amid_reasoning(chain: Chain) -> bool:
    """Whether the model is about to go on from results that it asked for with signed reasoning."""
    if not chain.messages or not chain.messages[-1].is_result:
        return False
    user = chain.last_user
    return bool(signed_in(chain, 0 if user is None else user + 1))
