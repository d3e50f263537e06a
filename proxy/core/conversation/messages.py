"""What is known of a message wherever it came from: its role, what identifies it, its calls.

A :class:`Message` holds no content, so a process can remember it for as long as it likes; content is read
from the raw slice again in the rare moment that an epoch is planned.

Clients do not send an answer back as they received it: SDKs drop nulls and unknown members, reorder keys,
parse and re-print arguments, strip white space. The identity leaves out exactly what they change, so that two
messages are the same, and a history continues another, whichever SDK carries them.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import cast

import msgspec

from proxy.core.dialects.dialect import Content
from proxy.core.formats.json import dumps, loads

HEAD_ROLES = frozenset({"system", "developer"})
"""Roles are those of policies; a dialect reads each message that it knows as one of these."""
TOOL_ROLES = frozenset({"tool", "function"})
_DEEPEST = 64
"""Nesting from which values compare as they are written, so that no body can exhaust the stack."""
_EXACT = 2**53
"""Up to here JavaScript prints 20.0 as 20 and loses nothing."""
_UNSTABLE_PART_MEMBERS = frozenset({"cache_control", "annotations"})


class Message(msgspec.Struct, frozen=True, gc=False):
    """What must be known of a message to place it in a chain and a unit."""

    role: str
    identity: bytes
    """SHA-256 over what SDKs keep of a message."""
    calls: tuple[str, ...] = ()
    """Ids of the tool calls that it makes."""
    answers: tuple[str, ...] = ()
    """Ids of the tool calls that it answers; an API may have the results of several in one message."""

    @property
    def is_result(self) -> bool:
        """Whether it brings results of tool calls, though a user may say something beside them."""
        return bool(self.answers) or self.role in TOOL_ROLES

    @property
    def is_final(self) -> bool:
        """Whether it ends an exchange: an answer without tool calls."""
        return self.role == "assistant" and not self.calls


def head_length(roles: Sequence[str]) -> int:
    """How many leading messages are system or developer messages: the part of the head that is messages."""
    for index, role in enumerate(roles):
        if role not in HEAD_ROLES:
            return index
    return len(roles)


def last_user(messages: Sequence[Message]) -> int | None:
    """Position of the last user message."""
    for back, message in enumerate(reversed(messages), 1):
        if message.role == "user":
            return len(messages) - back
    return None


# --- what makes two messages the same ---


def read_message(content: Content) -> Message:
    """Everything that placing a message needs, content left behind."""
    exact = content if content.is_exact else content.exact
    made = [(call_id, name, canonical_arguments(text)) for call_id, name, text in exact.calls]
    parts: list[object] = []
    for part in exact.parts:
        text: object = part.get("text")
        if isinstance(text, str):
            text = text.strip()
        else:
            text = _canonical({name: part[name] for name in part if name not in _UNSTABLE_PART_MEMBERS})
        if text:
            parts.append(text)
    answers: object = exact.answers[0] if len(exact.answers) == 1 else exact.answers
    identifying = [exact.role, exact.name, parts, made, answers or None]
    calls = tuple([call_id for call_id, _, _ in content.calls])
    return Message(content.role, hashlib.sha256(dumps(identifying)).digest(), calls, tuple(content.answers))


def canonical_arguments(text: str) -> object:
    """Arguments compare as JSON where they are JSON; a string that only looks like it stays a string."""
    try:
        return ["json", _canonical(loads(text.strip() or "{}"))]
    except ValueError:
        return ["text", text.strip()]


def exact_arguments(text: str) -> object:
    """The same with null and empty members: to a tool they may mean something else than nothing."""
    try:
        return ["json", _canonical(loads(text.strip() or "{}"), keeps_empty=True)]
    except ValueError:
        return ["text", text.strip()]


def _canonical(value: object, depth: int = 0, *, keeps_empty: bool = False) -> object:
    """A JSON value, keys in order (as it is from ``_DEEPEST`` on), without null and empty members."""
    if depth == _DEEPEST:
        return value
    if isinstance(value, dict):
        members = sorted(cast("dict[str, object]", value).items())
        inner = {name: _canonical(member, depth + 1, keeps_empty=keeps_empty) for name, member in members}
        if keeps_empty:
            return inner
        return {name: member for name, member in inner.items() if member not in (None, "", [], {})}
    if isinstance(value, list):
        elements = cast("list[object]", value)
        return [_canonical(element, depth + 1, keeps_empty=keeps_empty) for element in elements]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value


def has_only_lost(now: Content, before: Content) -> bool:
    """Whether each line of a message's text was in it ``before`` too, when it may have said more."""
    was = _spaced(before.text)
    lines = [line for line in map(_spaced, now.text.splitlines()) if line]
    return bool(lines) and all(line in was for line in lines)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def root(person: str = "") -> bytes:
    """h₀ of a chain; ``person`` (``user`` or ``safety_identifier``) where no header names the session."""
    return _root(person) if person else _NOBODYS


def _root(person: str) -> bytes:
    return hashlib.sha256(b"unabridged chain 1\0" + person.encode(errors="surrogatepass")).digest()


_NOBODYS = _root("")
"""Of every chain that a header names, and of those that name no person."""


def extend(previous: bytes, identity: bytes) -> bytes:
    """hᵢ = SHA-256(hᵢ₋₁, identityᵢ)."""
    return hashlib.sha256(previous + identity).digest()


def joint(start: bytes, answer: bytes) -> bytes:
    """What names an answer (its identity) to words that begin after ``start``, whatever they are."""
    return hashlib.sha256(b"joint" + start + answer).digest()


def chain_of(identities: Iterable[bytes], start: bytes) -> list[bytes]:
    """The chain hash after each message."""
    return list(accumulate(identities, extend, initial=start))[1:]
