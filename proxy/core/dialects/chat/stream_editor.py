"""Edits a stream in which the proxy answers some tool calls: several answers of the upstream become one.

Text and reasoning pass at once, in the first round byte for byte. A tool call is held until its name is known
and, if the proxy may answer it, until the round is over. Calls after it wait with it, so that their order and
indexes are right. In that case the end of the answer is held back as well: the finish reason, the usage and
`[DONE]`.

Sans-I/O, and the result does not depend on how the bytes are split. At the end of a round the caller asks for
the calls to answer, and then goes on with the next round's bytes or ends the answer.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Collection, Mapping, Sequence
from typing import Self

from msgspec import Raw

from proxy.core.dialects.answers import HiddenCallRules, ToolCall
from proxy.core.dialects.chat.answer_editor import Editor, Element
from proxy.core.dialects.chat.completion import FAILED, SHARED, has_odd_choices, reported_error
from proxy.core.dialects.chat.delta import NULL, PartialCall, is_odd
from proxy.core.dialects.chat.usage import reported_usage, summed
from proxy.core.formats.json import elements, integer, members, object_of
from proxy.core.formats.sse import EVENT_LIMIT, RawEvents, read_raw

_HELD_BYTES = 16 * 2**20
"""Bytes of held calls; beyond this limit the client gets them."""
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)?")
_FIRST = Raw(b"0")
_SAYS_NOTHING = (b"null", b'""', b"[]", b"{}")


class Chunk:
    """One event with a chunk of a completion; it can be changed, and otherwise passes byte for byte."""

    def __init__(self, raw: bytes, top: dict[str, Raw], *, is_error: bool, is_damaged: bool = False) -> None:
        self.raw = raw
        self.is_error = is_error
        """Whether the upstream reports an error in it."""
        self._is_changed = False
        self.top = top
        self.choices = elements(top.get("choices", NULL)) or []
        self.choice = (members(self.choices[0]) if self.choices else None) or {}
        self.delta = members(self.choice.get("delta", NULL)) or {}
        is_whole = "delta" not in self.choice and members(self.choice.get("message", NULL)) is not None
        is_odd_chunk = is_damaged or is_whole or len(self.choices) > 1 or has_odd_choices(top)
        self.is_odd = is_odd_chunk or is_odd(self.delta)
        """Whether some of it cannot be read, or is about several choices."""

    @classmethod
    def read(cls, raw: bytes) -> Self | None:
        """Read the chunk in an event; None where there is none."""
        event = read_raw(raw)
        if event is not None and event.name == "error":
            return cls(raw, {}, is_error=True)
        top = None if event is None else members(event.data)
        if event is None or (event.name != "message" and "choices" not in (top or {})):
            return None
        if top is None:
            is_damaged = event.data.lstrip().startswith(b"{")
            return cls(raw, {}, is_error=False, is_damaged=True) if is_damaged else None
        may_report = top.get("choices", NULL) == NULL or b'"error"' in raw
        return cls(raw, top, is_error=may_report and reported_error(top) is not None)

    @property
    def is_other_choice(self) -> bool:
        """Whether it is about another choice than the first."""
        index = self.choice.get("index", _FIRST)
        return index != _FIRST and bool(integer(index))

    @property
    def finish(self) -> bytes:
        """The finish reason as JSON; empty where the answer does not end here."""
        if self.is_error:
            return FAILED
        reason = bytes(self.choice.get("finish_reason", NULL))
        return b"" if reason in (b"null", b'""') else reason  # some servers have an empty one in each chunk

    @property
    def usage(self) -> bytes:
        """The usage as JSON; empty where there is none."""
        own, in_choice = (holder.get("usage", NULL) for holder in (self.top, self.choice))
        return reported_usage(own, in_choice, self.top.get("x_groq", NULL))

    def says(self, *, besides: Sequence[str]) -> bool:
        """Whether its delta has any content ``besides`` these members."""
        said = [bytes(value) for name, value in self.delta.items() if name not in besides]
        return any(value not in _SAYS_NOTHING for value in said)

    def replace_members(self, **top: bytes) -> None:
        """Replace the values of top-level members, where the chunk has them."""
        for name, value in top.items():
            if name in self.top and bytes(self.top[name]) != value:
                self.top[name] = Raw(value)
                self._is_changed = True

    def replace_usage(self, usage: bytes) -> None:
        """Replace the usage wherever it stands."""
        groq = members(self.top.get("x_groq", NULL)) or {}
        for holder in (self.top, self.choice, groq):
            if holder.get("usage", NULL) != NULL:
                holder["usage"] = Raw(usage)
        if "usage" in groq:
            self.top["x_groq"] = Raw(object_of(groq.items()))
        self._is_changed = True

    def replace_finish(self, reason: bytes) -> None:
        """Replace the finish reason; `null` means that the answer goes on."""
        if self.finish != reason:
            self.choice["finish_reason"] = Raw(reason)
            self._is_changed = True

    def replace_delta(self, delta: Mapping[str, bytes | Raw]) -> None:
        """Replace the delta."""
        self.delta = {name: Raw(bytes(value)) for name, value in delta.items()}
        self._is_changed = True

    def encoded(self) -> bytes:
        """The event's bytes: unchanged, or with only its data rewritten, in one line."""
        if not self._is_changed:
            return self.raw
        top = dict(self.top)
        if self.choices:
            delta = {"delta": object_of(self.delta.items())} if "delta" in self.choice else {}
            top["choices"] = Raw(b"[" + object_of({**self.choice, **delta}.items()) + b"]")
        written, is_written = bytearray(BOM_UTF8 if self.raw.startswith(BOM_UTF8) else b""), False
        for line in _LINE.findall(self.raw.removeprefix(BOM_UTF8)):
            bare = line.rstrip(b"\r\n")
            if bare != b"data" and not bare.startswith(b"data:"):
                written += line
            elif not is_written:
                written += b"data: " + object_of(top.items()) + line[len(bare) :]
                is_written = True
        return bytes(written)


def _is_done(raw: bytes) -> bool:
    event = read_raw(raw) if b"[DONE]" in raw else None
    return event is not None and event.data.startswith(b"[DONE]")


class StreamEditor(Editor):
    """Edits the bytes of one stream; ``rules`` say which tool calls may be hidden."""

    def __init__(self, rules: HiddenCallRules, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._has_role = False
        self._passes_all = False
        self._last = b""
        super().__init__(rules)

    def _begin(self, *, may_ask: bool) -> None:
        super()._begin(may_ask=may_ask)
        self._events = RawEvents(self._limit)
        self._held: list[tuple[Chunk, list[Element]]] = []
        self._held_bytes = 0
        self._behind: set[PartialCall] = set()
        """Calls with a chunk among those held."""
        self._waits = not self._is_first
        """Whether the end of the answer is held back."""
        self._done = b""

    def feed(self, chunk: bytes) -> bytes:
        if self._passes_all:
            return chunk
        passed = [self._event(raw) for raw in self._events.feed(chunk)]
        if self._events.is_too_long or self._held_bytes > _HELD_BYTES:
            passed.append(self._release())
        if self._passes_all:
            passed.append(self._events.rest())
        return b"".join(passed)

    def rest(self) -> bytes:
        left, whole = self._events.rest(), b""
        if left.endswith((b"\r\r", b"\n\r")):  # a whole event: no LF has followed its last CR
            whole, left = self._event(left), b""
        if self._passes_all or _is_done(left):
            return whole + self._event(left)
        self.is_over = True
        if b"tool_calls" in left:  # half an event means nothing to a client, and this one may not be its own
            left = b""
        if not self.has_ended:
            return whole + self._release() + left
        return whole + (b"" if self._waits else left)

    def settle(self, hidden: Collection[ToolCall]) -> None:
        self._calls.settle(hidden)
        self._last = self._flush_all()

    def end(self, comment: bytes = b"") -> bytes:
        """Return the last bytes of a settled answer, with a ``comment`` before `[DONE]`; the rest passes."""
        self._passes_all = True
        return self._last + comment + self._done + self._events.rest()

    def _event(self, raw: bytes) -> bytes:
        if self._passes_all or self.is_over:
            return raw if self._passes_all else b""
        if _is_done(raw):
            passed = b"" if self.has_ended else self._close()
            self.is_over, self._passes_all = True, not self._waits
            self._done = raw if self._waits else b""
            return passed if self._waits else passed + raw
        chunk = Chunk.read(raw)
        if chunk is None or (chunk.is_error and not chunk.choices):
            return raw if chunk is None else self._release() + raw
        if chunk.is_odd or chunk.is_other_choice:
            return self._show_all() + raw if chunk.is_odd else raw
        self._share(chunk)
        if chunk.choices:
            calls = self._calls.take(chunk.delta.get("tool_calls", NULL))
            self._calls.message.add({name: raw for name, raw in chunk.delta.items() if name != "tool_calls"})
            if self._finish != FAILED:
                self._finish = chunk.finish or self._finish
            passed = self._close() if chunk.finish else self._flushed()
            return passed + self._for_client(chunk, calls)
        if not chunk.usage or not self._waits:
            return chunk.encoded()
        return self._for_client(chunk, []) if self.has_ended else b""

    def _share(self, chunk: Chunk) -> None:
        """Give the chunk the members that all rounds share, and the summed usage of the rounds.

        They are those of the first chunk of the answer itself: Azure tells of its filters in one before it,
        in which they are empty.
        """
        if not self._is_first:
            chunk.replace_members(**self._shared)
        elif chunk.choices:
            for name in SHARED:
                if name in chunk.top:
                    self._shared.setdefault(name, bytes(chunk.top[name]))
        if chunk.usage:
            self._usage = chunk.usage
            if self._spent:
                chunk.replace_usage(summed(self._spent, chunk.usage))

    def _close(self) -> bytes:
        """Handle the end of the round: all names are known now, and whether to hold back the answer's end."""
        self.has_ended = True
        self._calls.name_all()
        if self._calls.message.is_odd:
            return self._show_all()
        self._waits = self._waits or self._calls.has_answerable
        return self._flushed()

    # --- chunks that pass, or must wait ---

    def _is_due(self, chunk: Chunk, calls: list[Element]) -> bool:
        """Whether a chunk can go out: its calls are decided, and it is not an end that is held back."""
        is_end = bool(chunk.finish) or not chunk.choices
        return not (self._waits and is_end) and self._calls.are_settled(calls)

    def _for_client(self, chunk: Chunk, calls: list[Element]) -> bytes:
        """Return what the client gets of a chunk now; of one that must wait, the text alone."""
        if self._is_due(chunk, calls) and not any(call in self._behind for _, call in calls):
            if not chunk.choices:
                return chunk.encoded()
            seen = self._calls.client_deltas(calls)
            if seen == [element for element, _ in calls]:
                return self._passed(chunk)
            delta: dict[str, bytes | Raw] = {**chunk.delta}
            del delta["tool_calls"]
            if seen:
                delta["tool_calls"] = b"[" + b",".join(object_of(each.items()) for each in seen) + b"]"
            chunk.replace_delta(delta)
            return self._passed(chunk, is_optional=True)
        passed = b""
        if chunk.says(besides=("role", "tool_calls")):
            text = Chunk(chunk.raw, dict(chunk.top), is_error=False)
            text.replace_delta({name: raw for name, raw in chunk.delta.items() if name != "tool_calls"})
            text.replace_finish(b"null")
            text.replace_usage(b"null")
            chunk.replace_delta({name: raw for name, raw in chunk.delta.items() if name == "tool_calls"})
            chunk.choice.pop("logprobs", None)  # they are the text's
            passed = self._passed(text)
        self._held.append((chunk, calls))
        self._held_bytes += len(chunk.raw)
        self._behind.update(call for _, call in calls)
        return passed

    def _flushed(self) -> bytes:
        """Return the held chunks that are settled by now."""
        if not self._held or not self._is_due(*self._held[0]):
            return b""
        held, self._held, self._held_bytes, self._behind = self._held, [], 0, set()
        return b"".join([self._for_client(chunk, calls) for chunk, calls in held])

    def _flush_all(self) -> bytes:
        """Return all held chunks, with a finish reason that fits what the client has seen."""
        self._waits = False
        for chunk, _ in self._held:
            if chunk.finish == b'"tool_calls"' and not self._calls.shows_any:
                chunk.replace_finish(b'"stop"')
        return self._flushed()

    def _show_all(self) -> bytes:
        """Stop answering calls, because some of the answer cannot be read; the client gets its calls."""
        self.has_given_up = True
        self._calls.settle()
        return self._flushed()

    def _release(self) -> bytes:
        """Give up editing: return what is held for the client, and let all later bytes pass."""
        self._passes_all = True
        return self._show_all() + self._flush_all()

    def _passed(self, chunk: Chunk, *, is_optional: bool = False) -> bytes:
        """Return a chunk's bytes for the client.

        A chunk without new content is left out after the first round, or where it ``is_optional``.
        """
        if self._has_role and not self._is_first and "role" in chunk.delta:
            chunk.replace_delta({name: raw for name, raw in chunk.delta.items() if name != "role"})
        says_nothing = not chunk.says(besides=("role",) if self._has_role else ())
        if (is_optional or not self._is_first) and says_nothing and not chunk.finish:
            return b""
        self._has_role = self._has_role or "role" in chunk.delta
        self._visible.add(chunk.delta)
        return chunk.encoded()
