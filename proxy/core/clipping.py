"""Clipping: the last resort where nothing is left to cut and the view is still over its budget (law 4).

Tool results are clipped first, the largest most, then user messages but the last; the first user message
before all, where its protection had to yield. Results that the model is still to answer come last, and keep
at least half of what the budget has room for. Never an assistant message (law 2). Head and tail are kept;
what goes out is literal bytes in the plan, cut between code points.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from proxy.core.budget import MESSAGE_TOKENS
from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import TOOL_ROLES, as_mapping, text_or_empty
from proxy.core.plan import Plan, Replacement, view_tokens
from proxy.core.situation import FIRST_USER, FIRST_USER_LEAST, Count, Situation
from proxy.core.units import last_user, open_from

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
    sizes = {place: chain.tokens[place] for place in range(len(chain)) if not plan.covers(place)}
    sizes |= {edit.position: edit.tokens for edit in plan.replacements}
    for places, kept in _clippable(situation, sizes, yielded):
        view = view_tokens(plan, chain.tokens)
        if view <= enough:
            break
        standing = [sizes[place] for place in places]
        least = _level(standing, view - budget.share(1)) // 2 if kept is None else kept
        most = max(_level(standing, view - enough), least)
        for place in places:
            found = clip(chain.raws[place], chain.tokens[place], min(most, sizes[place]), situation.count)
            if sizes[place] > most and found is not None and found[1] < sizes[place]:
                plan = _replace(plan, Replacement(place, *found))
                sizes[place] = found[1]
    return plan


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


def _replace(plan: Plan, new: Replacement) -> Plan:
    others = [kept for kept in plan.replacements if kept.position != new.position]
    return Plan(plan.gaps, tuple(sorted([*others, new], key=lambda kept: kept.position)))


def clip(raw: bytes, tokens: int, allowed: int, count: Count) -> tuple[bytes, int] | None:
    """The message with its texts clipped, the longest first, to about ``allowed`` of its ``tokens``.

    Answers the new bytes and their counted tokens; None where there is no text to clip.
    """
    members = dict(as_mapping(loads(raw)))
    content = members.get("content")
    parts = cast("list[object]", content) if isinstance(content, list) else [content]
    texts = {place: text for place, part in enumerate(parts) if (text := _text_of(part))}
    if isinstance(content, str) and content:
        texts = {0: content}
    if not texts:
        return None
    sizes = {place: count(text) for place, text in texts.items()}
    beside = max(tokens - sum(sizes.values()), MESSAGE_TOKENS)
    for place in sorted(texts, key=lambda place: -sizes[place]):
        excess = beside + sum(sizes.values()) - allowed
        if excess <= 0:
            break
        left = max(sizes[place] - excess, 1)
        texts[place], sizes[place] = _shorten(texts[place], sizes[place], left, count)
    clipped = [_with_text(part, texts[place]) if place in texts else part for place, part in enumerate(parts)]
    members["content"] = clipped if isinstance(content, list) else clipped[0]
    return dumps(members), beside + sum(sizes.values())


def _text_of(part: object) -> str:
    return text_or_empty(as_mapping(part).get("text"))


def _with_text(part: object, text: str) -> object:
    return text if isinstance(part, str) else {**as_mapping(part), "text": text}


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
