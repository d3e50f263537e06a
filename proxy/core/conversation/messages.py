"""Facts about a message that do not depend on its dialect: role, identity, tool calls.

A :class:`Message` holds no content, so a process can keep it in memory; content is read again from the raw
slice in the rare case that an epoch is planned. Its identity leaves out what clients change when they send an
answer back (docs/decisions/identity-of-messages.md).
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, cast

import msgspec

from proxy.core.dialects.dialect import Content
from proxy.core.formats.json import dumps, loads

HEAD_ROLES = frozenset({"system", "developer"})
"""Roles are named as in policies; a dialect maps the role of each message that it knows to one of these."""
TOOL_ROLES = frozenset({"tool", "function"})
_DEEPEST = 64
"""Nesting depth beyond which values are compared as written, so that no body can exhaust the stack."""
_EXACT = 2**53
"""Largest number that JavaScript holds exactly; up to it, 20.0 is printed as 20 without loss."""
_UNSTABLE_PART_MEMBERS = frozenset({"cache_control", "annotations"})
_THINKING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
_THINKING = re.compile(r"\s*<(think(?:ing)?|reason(?:ing)?|thoughts?)>")


class Message(msgspec.Struct, frozen=True, gc=False):
    """The facts about a message that are needed to place it in a chain and a unit."""

    role: str
    identity: bytes
    """SHA-256 over the parts of a message that SDKs do not change."""
    calls: tuple[str, ...] = ()
    """Ids of the tool calls that it makes."""
    result_of: tuple[str, ...] = ()
    """Ids of the tool calls whose results it carries; some APIs put several results into one message."""
    spoken: bytes = b""
    """Of an answer with reasoning in parts, or in tags at its beginning, or with a text in several parts: its
    identity as one text without reasoning, as clients may send it back; else empty."""

    @property
    def is_result(self) -> bool:
        """Whether it carries results of tool calls; a user may say something beside them."""
        return bool(self.result_of) or self.role in TOOL_ROLES

    @property
    def is_final(self) -> bool:
        """Whether it ends an exchange: an answer without tool calls."""
        return self.role == "assistant" and not self.calls


def head_length(roles: Sequence[str]) -> int:
    """Number of leading system and developer messages: those that belong to the head."""
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
    """Return the :class:`Message` for a decoded message."""
    exact = content if content.is_exact else content.exact
    parts = [*exact.parts]
    said = _spoken(parts) if content.role == "assistant" else parts
    spoken = _identity(exact, said) if said != parts else b""
    calls = tuple([call_id for call_id, _, _ in content.calls])
    return Message(content.role, _identity(exact, parts), calls, tuple(content.result_of), spoken)


def _spoken(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The parts of an answer without reasoning, and with neighbouring texts as one."""
    left: list[Mapping[str, Any]] = []
    for part in parts:
        if part.get("type") in _THINKING_PARTS:
            continue
        before, text = left[-1].get("text") if left else None, part.get("text")
        if isinstance(before, str) and isinstance(text, str):
            left[-1] = {**left[-1], "text": before + text}
        else:
            left.append(part)
    begins = left[0].get("text") if left else None
    if isinstance(begins, str):
        left[0] = {**left[0], "text": without_thoughts(begins)}
    return left


def without_thoughts(text: str) -> str:
    """Return a text without reasoning in tags at its beginning, which many clients do not send back.

    Where the model's template has written the opening tag, the text has only the closing one.
    """
    opened = _THINKING.match(text)
    _, is_closed, rest = text.partition(f"</{opened[1]}>" if opened else "</think>")
    return rest if is_closed else text


def begins_with_thought(text: str) -> bool:
    """Whether a text begins with the opening tag of reasoning."""
    return _THINKING.match(text) is not None


def _identity(exact: Content, content: Sequence[Mapping[str, Any]]) -> bytes:
    made = [(call_id, name, canonical_arguments(text)) for call_id, name, text in exact.calls]
    parts: list[object] = []
    for part in content:
        text: object = part.get("text")
        if isinstance(text, str):
            text = text.strip()
        else:
            text = {name: part[name] for name in part if name not in _UNSTABLE_PART_MEMBERS}
            with suppress(ValueError):
                text = _canonical(text)
        if text:
            parts.append(text)
    result_of: object = exact.result_of[0] if len(exact.result_of) == 1 else exact.result_of
    # No API names its answers; agent frameworks put a name on those that they send back.
    name = "" if exact.role == "assistant" else exact.name
    identifying = [exact.role, name, parts, made, result_of or None]
    if not (parts or made) and (said := exact.refusal.strip() or exact.audio):
        identifying.append(said)
    return hashlib.sha256(dumps(identifying)).digest()


def canonical_arguments(text: str, *, keeps_empty: bool = False) -> object:
    """Return arguments in a form to compare them by: parsed where they are JSON, else as stripped text.

    A tag keeps text apart from a JSON string with the same characters. Null and empty members are left out
    unless it ``keeps_empty`` ones: to a tool they may differ from none.
    """
    try:
        return ["json", _canonical(loads(text.strip() or "{}"), keeps_empty=keeps_empty)]
    except ValueError:
        return ["text", text.strip()]


def _canonical(value: object, depth: int = 0, *, keeps_empty: bool = False) -> object:
    """A JSON value with sorted keys, without null and empty members. Raises ValueError if it is too deep."""
    if depth == _DEEPEST:
        raise ValueError("nested too deeply")
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


def has_only_lost_text(now: Content, before: Content) -> bool:
    """Whether a message has only lost text: each of its lines was in the message ``before`` as well."""
    was = _spaced(before.text)
    lines = [line for line in map(_spaced, now.text.splitlines()) if line]
    return bool(lines) and all(line in was for line in lines)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def root_hash(person: str = "") -> bytes:
    """h₀ of a chain; ``person`` (``user`` or ``safety_identifier``) if no header names the session."""
    return hashlib.sha256(b"unabridged chain 1\0" + person.encode(errors="surrogatepass")).digest()


def next_hash(previous: bytes, identity: bytes) -> bytes:
    """hᵢ = SHA-256(hᵢ₋₁, identityᵢ)."""
    return hashlib.sha256(previous + identity).digest()


def joint_hash(start: bytes, answer: bytes) -> bytes:
    """A hash of an answer's identity and ``start``, whatever messages stand between the two."""
    return hashlib.sha256(b"joint" + start + answer).digest()


def suffix_hash(owner: str, first: bytes, second: bytes) -> bytes:
    """A hash of the identities of two messages that follow each other, in sessions of ``owner``."""
    return hashlib.sha256(b"suffix" + owner.encode(errors="surrogatepass") + first + second).digest()


def chain_hashes(identities: Iterable[bytes], start: bytes) -> list[bytes]:
    """The chain hash after each message."""
    return list(accumulate(identities, next_hash, initial=start))[1:]
