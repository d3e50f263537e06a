"""Old images leave a line of text in their place: `[image, 640x480, cleared]`.

Part by part: what a message says beside its images stays. Never in the last user message, nor in what is
protected, nor in an assistant's message (law 2). The line is a pure function of the image (law 3).
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from proxy.core.budget import MESSAGE_TOKENS
from proxy.core.images import image_size
from proxy.core.jsonvalue import dumps
from proxy.core.messages import Content, as_mapping, text_or_empty
from proxy.core.plan import Replacement
from proxy.core.situation import FREE, Situation
from proxy.core.tool_results import CLEARED, LEAST_SAVED, Clearing


def picture_clearings(situation: Situation) -> Iterator[Clearing]:
    """What may be cleared, oldest first."""
    messages = situation.chain.messages
    settled = {edit.position for edit in situation.plan.replacements}
    for index in situation.standing:
        if situation.protection[index] != FREE:
            continue
        unit = situation.units[index]
        for place in range(unit.start, unit.end):
            if messages[place].role == "user" and place not in settled:
                yield from _cleared(situation, index, place)


def _cleared(situation: Situation, index: int, place: int) -> Iterator[Clearing]:
    content = situation.content(place)
    parts = _parts(content)
    if not any(map(_is_image, parts)):
        return
    new = Content(
        {**content.members, "content": [_line(part) if _is_image(part) else part for part in parts]}
    )
    tokens = MESSAGE_TOKENS + situation.count(new.countable())
    saves = situation.tokens[place] - tokens
    if saves >= LEAST_SAVED:
        yield Clearing(index, Replacement(place, dumps(new.members), tokens, CLEARED), saves, is_told=True)


def _parts(content: Content) -> list[Mapping[str, Any]]:
    """The parts of a message of texts and images; none of one that holds anything else."""
    found = content.members.get("content")
    parts = [as_mapping(part) for part in cast("list[object]", found)] if isinstance(found, list) else []
    return parts if all(part.get("type") == "text" or _is_image(part) for part in parts) else []


def _is_image(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "image_url"


def _line(part: Mapping[str, Any]) -> dict[str, str]:
    image = part.get("image_url")
    size = image_size(text_or_empty(as_mapping(image).get("url")) or text_or_empty(image))
    told = f"[image, {size[0]}x{size[1]}, cleared]" if size else "[image, cleared]"
    return {"type": "text", "text": told}
