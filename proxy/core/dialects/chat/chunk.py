"""The chunks of a stream in their events, so that those nobody changes pass byte for byte (law 1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Self

from msgspec import Raw

from proxy.core.dialects.chat.completion import has_odd_choices
from proxy.core.dialects.chat.delta import NULL, object_of
from proxy.core.formats.json import elements, integer, members
from proxy.core.formats.sse import BOM, read_raw

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)?")
_FIRST = Raw(b"0")
_SAYS_NOTHING = (b"null", b'""', b"[]", b"{}")


class Chunk:
    """One event that carries a chunk of a completion; it can be changed, member by member."""

    __slots__ = ("_is_changed", "_is_damaged", "_raw", "choice", "choices", "delta", "is_error", "top")

    def __init__(self, raw: bytes, top: dict[str, Raw], *, is_error: bool, is_damaged: bool = False) -> None:
        self._raw = raw
        self._is_damaged = is_damaged
        self.is_error = is_error
        """Whether the upstream says in it that something went wrong."""
        self._is_changed = False
        self.top = top
        self.choices = elements(top.get("choices", NULL)) or []
        self.choice = (members(self.choices[0]) if self.choices else None) or {}
        self.delta = members(self.choice.get("delta", NULL)) or {}

    @property
    def is_odd(self) -> bool:
        """Whether some of it cannot be read, or is not about one choice."""
        is_whole = "delta" not in self.choice and members(self.choice.get("message", NULL)) is not None
        return self._is_damaged or is_whole or len(self.choices) > 1 or has_odd_choices(self.top)

    @classmethod
    def read(cls, raw: bytes) -> Self | None:
        """The chunk in an event; None where it carries none."""
        event = read_raw(raw)
        if event is not None and event.name == "error":
            return cls(raw, {}, is_error=True)
        if event is None or event.name != "message":
            return None
        top = members(event.data)
        if top is None:
            is_damaged = event.data.lstrip().startswith(b"{")
            return cls(raw, {}, is_error=False, is_damaged=True) if is_damaged else None
        return cls(raw, top, is_error=bytes(top.get("error", NULL)) != b"null")

    @property
    def size(self) -> int:
        """Bytes of the event as it came."""
        return len(self._raw)

    @property
    def is_other_choice(self) -> bool:
        """Whether it speaks of other choices than the first."""
        index = self.choice.get("index", _FIRST)
        return index != _FIRST and bool(integer(index))

    @property
    def finish(self) -> bytes:
        """The reason for which the answer ends here, as JSON; empty where it goes on."""
        reason = bytes(self.choice.get("finish_reason", NULL))
        return b"" if reason == b"null" else reason

    @property
    def usage(self) -> bytes:
        """The usage, as JSON; empty where it has none."""
        usage = bytes(self.top.get("usage", NULL))
        return b"" if usage == b"null" else usage

    def says(self, *, besides: Sequence[str]) -> bool:
        """Whether its delta says anything ``besides`` these members."""
        return any(
            bytes(value) not in _SAYS_NOTHING for name, value in self.delta.items() if name not in besides
        )

    def put(self, **top: bytes) -> None:
        """Give members of the chunk that it has other values."""
        for name, value in top.items():
            if name in self.top and bytes(self.top[name]) != value:
                self.top[name] = Raw(value)
                self._is_changed = True

    def finish_with(self, reason: bytes) -> None:
        """Let the answer end for another reason, or go on (`null`)."""
        if self.finish != reason:
            self.choice["finish_reason"] = Raw(reason)
            self._is_changed = True

    def keep(self, delta: Mapping[str, bytes | Raw]) -> None:
        """Let its delta be this."""
        self.delta = {name: Raw(bytes(value)) for name, value in delta.items()}
        self._is_changed = True

    def copy(self) -> Chunk:
        """The chunk as it came, but for other members at its top."""
        return Chunk(self._raw, dict(self.top), is_error=self.is_error)

    def encoded(self) -> bytes:
        """The event: its own bytes, or with only its data written anew, in one line."""
        if not self._is_changed:
            return self._raw
        top = dict(self.top)
        if self.choices:
            delta = {"delta": object_of(self.delta.items())} if "delta" in self.choice else {}
            top["choices"] = Raw(b"[" + object_of({**self.choice, **delta}.items()) + b"]")
        written, is_written = bytearray(BOM if self._raw.startswith(BOM) else b""), False
        for line in _LINE.findall(self._raw.removeprefix(BOM)):
            bare = line.rstrip(b"\r\n")
            if bare != b"data" and not bare.startswith(b"data:"):
                written += line
            elif not is_written:
                written += b"data: " + object_of(top.items()) + line[len(bare) :]
                is_written = True
        return bytes(written)


def is_done(raw: bytes) -> bool:
    """Whether an event is `[DONE]`."""
    if b"[DONE]" not in raw:
        return False
    event = read_raw(raw)
    return event is not None and event.data.startswith(b"[DONE]")
