"""A message in the words of an answer: its author, its exact text, and the tool calls that it makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.core.messages import TOOL_ROLES, Content, text_or_empty


@dataclass(frozen=True, slots=True)
class Original:
    """A message as people would read it."""

    author: str
    text: str


def original_of(content: Content, tool: str = "") -> Original:
    """A message in words; ``tool`` is the one whose result it is."""
    return Original(_author(content, tool), "\n".join(_lines(content)))


def _author(content: Content, tool: str) -> str:
    if content.role in TOOL_ROLES:
        named = tool or content.name
        return f"result of {named}" if named else "result of a tool"
    return f"{content.role} {content.name}".strip()


def _lines(content: Content) -> Iterator[str]:
    for part in content.parts():
        if isinstance(part.get("text"), str):
            yield part["text"]
        else:
            yield f"[{text_or_empty(part.get('type')) or 'a part'} that is not text]"
    refusal = text_or_empty(content.members.get("refusal"))
    if refusal:
        yield refusal
    for _, name, arguments in content.tool_calls():
        yield f"calls {name} with {arguments}"
