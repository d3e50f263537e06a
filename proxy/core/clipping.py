"""Clipping: the last resort for a message that must stay and is too large. Head and tail are kept.

Only tool results and user messages are clipped, never an assistant message (law 2). What goes out is literal
bytes in the plan, cut between code points.
"""

from collections.abc import Callable
from typing import cast

from proxy.core.budget import MESSAGE_TOKENS
from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import as_mapping, text_or_empty

_MARK = "\n[… {n} characters left out …]\n"
_HEAD_SHARE = 0.6
_ROUNDS = 12

Count = Callable[[str], int]


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
