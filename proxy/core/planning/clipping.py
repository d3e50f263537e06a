"""Clipping: the last resort where nothing is left to cut and the view is still over its budget (law 4).

Tool results are clipped first, the largest most, then user messages but the last; the first user message
before all, where its protection had to yield. Results that the model is still to answer come last, and keep
at least half of what the budget has room for. Never an assistant message (law 2). Head and tail are kept;
what goes out is literal bytes in the plan, cut between code points.
"""

from collections.abc import Mapping, Sequence

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.conversation.units import last_user, open_from
from proxy.core.dialects.dialect import Content
from proxy.core.planning.plan import Plan, Replacement, view_tokens
from proxy.core.planning.situation import FIRST_USER, FIRST_USER_LEAST, Count, Situation

_MARK = "\n[… {n} characters left out …]\n"
_HEAD_SHARE = 0.6
_ROUNDS = 12


def clip_view(situation: Situation, plan: Plan, yielded: int, set_aside: int = 0) -> Plan:
    """The plan with clips, until its view fits the budget or nothing is left to clip.

    ``yielded`` is the firmest protection that had to yield; ``set_aside``, counted tokens that the view will
    still grow by.
    """
    budget, chain = situation.budget, situation.chain
    enough = max(budget.share(situation.policy.stages.trim) - set_aside, 0)
    if view_tokens(plan, chain.tokens) <= budget.share(1):
        return plan
    sizes = {place: chain.tokens[place] for run in plan.kept(len(chain)) for place in run}
    sizes |= {edit.position: edit.tokens for edit in plan.replacements}
    edits = {edit.position: edit for edit in plan.replacements}
    view = view_tokens(plan, chain.tokens)
    for places, kept in _clippable(situation, sizes, yielded):
        if view <= enough:
            break
        standing = [sizes[place] for place in places]
        least = _level(standing, view - budget.share(1)) // 2 if kept is None else kept
        most = max(_level(standing, view - enough), least)
        for place in (place for place in places if sizes[place] > most):
            found = clip(situation.content(place), chain.tokens[place], most, situation.count)
            if found is not None and found[1] < sizes[place] and len(found[0]) <= len(chain.raws[place]):
                edits[place] = Replacement(place, *found)
                view -= sizes[place] - found[1]
                sizes[place] = found[1]
    return Plan(plan.gaps, tuple(edits[place] for place in sorted(edits)))


def _level(sizes: Sequence[int], excess: int) -> int:
    """The most that each may keep, so that together they give up ``excess``: the largest give first."""
    left = max(sum(sizes) - excess, 0)
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def _clippable(
    situation: Situation, sizes: Mapping[int, int], yielded: int
) -> list[tuple[list[int], int | None]]:
    """Messages that may be clipped, group by group, with the tokens that each of a group keeps at least.

    None: at least half of what the budget has room for.
    """
    messages, units = situation.chain.messages, situation.units
    asked = last_user(messages)
    open_at = units[open_from(messages, units)].start if units else 0
    places = sorted(sizes)
    results = [place for place in places if messages[place].role in TOOL_ROLES]
    closed = [place for place in results if place < open_at]
    still_open = [place for place in results if place >= open_at]
    asks = [place for place in places if messages[place].role == "user" and place != asked]
    first = asks[:1] if yielded >= FIRST_USER else []
    groups = [(first, FIRST_USER_LEAST), (closed, 0), (asks, 0), (still_open, None)]
    return [(group, least) for group, least in groups if group]


def clip(message: Content, tokens: int, allowed: int, count: Count) -> tuple[bytes, int] | None:
    """The message with its texts clipped, the longest first, to about ``allowed`` of its ``tokens``.

    Answers the new bytes and their counted tokens; None where there is no text to clip.
    """
    exact = message.exact
    texts = exact.texts()
    sizes = {place: count(text) for place, text in enumerate(texts) if text}
    if not sizes:
        return None
    beside = max(tokens - sum(sizes.values()), MESSAGE_TOKENS)
    for place in sorted(sizes, key=lambda place: -sizes[place]):
        excess = beside + sum(sizes.values()) - allowed
        if excess <= 0:
            break
        left = max(sizes[place] - excess, 1)
        texts[place], sizes[place] = _shorten(texts[place], sizes[place], left, count)
    return exact.with_texts(texts).written(), beside + sum(sizes.values())


def _shorten(text: str, whole: int, allowed: int, count: Count) -> tuple[str, int]:
    """Head and tail of ``text`` within ``allowed`` tokens, or the mark alone where that is too little."""
    keep = int(len(text) * min(allowed / max(whole, 1), 1.0))
    for _ in range(_ROUNDS):
        head = int(keep * _HEAD_SHARE)
        tail = keep - head
        clipped = text[:head] + _MARK.format(n=len(text) - keep) + text[len(text) - tail :]
        size = count(clipped)
        if size <= allowed or keep == 0:
            return clipped, size
        keep = int(keep * min(allowed / size, 0.95)) if size < 4 * allowed else keep // 4
    mark = _MARK.format(n=len(text)).strip()
    return mark, count(mark)
