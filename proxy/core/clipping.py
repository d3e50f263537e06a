"""Clipping: the last resort for a message that must stay and is too large. Head and tail are kept.

Only tool results and user messages are clipped, never an assistant message (law 2). What goes out is literal
bytes in the plan, cut between code points.
"""

from collections.abc import Callable
from typing import Any, cast

from proxy.core.budget import MESSAGE_TOKENS
from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import as_mapping

_MARK = "\n[… {n} characters left out …]\n"
_HEAD_SHARE = 0.6
_ROUNDS = 12


def clip(raw: bytes, tokens: int, allowed: int, count: Callable[[str], int]) -> tuple[bytes, int] | None:
    """The message with its longest text clipped to about ``allowed`` of its ``tokens`` (counted).

    Answers the new bytes and their counted tokens; None where there is no text to clip.
    """
    members = dict(as_mapping(loads(raw)))
    text, put_back = _longest_text(members)
    if not text:
        return None
    whole = count(text)
    beside = max(tokens - whole, MESSAGE_TOKENS)
    clipped, size = _shorten(text, whole, max(allowed - beside, 1), count)
    put_back(clipped)
    return dumps(members), beside + size


def _longest_text(members: dict[str, Any]) -> tuple[str, Callable[[str], None]]:
    """The longest text of a message, and how to put another in its place."""
    content = members.get("content")
    if isinstance(content, str):
        return content, lambda text: members.update(content=text)
    listed = cast("list[object]", content) if isinstance(content, list) else []
    parts = [as_mapping(part) for part in listed]
    lengths = [len(part["text"]) if isinstance(part.get("text"), str) else 0 for part in parts]
    if not any(lengths):
        return "", lambda text: None
    longest = lengths.index(max(lengths))

    def put_back(text: str) -> None:
        members["content"] = [
            {**part, "text": text} if i == longest else part for i, part in enumerate(parts)
        ]

    return parts[longest]["text"], put_back


def _shorten(text: str, whole: int, allowed: int, count: Callable[[str], int]) -> tuple[str, int]:
    """Head and tail of ``text`` within ``allowed`` tokens, or its mark alone where even that is too little."""
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
