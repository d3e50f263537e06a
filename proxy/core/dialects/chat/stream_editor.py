"""A stream in which some calls are answered by the proxy: several answers of the upstream told as one.

Text and reasoning pass at once, in the first round byte for byte. A tool call is held until its name is known
and, where the proxy may answer it, until the round is over; calls after it wait with it, so that their order
and numbers are right. Then what ends the answer is held back as well: the reason, the usage and `[DONE]`.

Sans-I/O, and the same for every cut of the bytes. Whoever pumps the bytes asks at the end of a round for the
calls to be answered (:meth:`StreamEditor.requested`), and goes on with the next round's bytes or ends the
answer.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Raw

from proxy.core.dialects.answers import Rules, ToolCall, Usage
from proxy.core.dialects.chat.calls import Calls, Element
from proxy.core.dialects.chat.chunk import Chunk, is_done
from proxy.core.dialects.chat.completion import SHARED, summed, usage_of
from proxy.core.dialects.chat.delta import PartialCall, PartialMessage, object_of
from proxy.core.formats.sse import EVENT_LIMIT, RawEvents

_HELD_BYTES = 16 * 2**20
"""Of calls that are held back; beyond them they are the client's."""

Held = tuple[Chunk, list[Element]]


class StreamEditor:
    """Edits the bytes of one stream; ``rules`` say which calls may be hidden."""

    def __init__(self, rules: Rules, limit: int = EVENT_LIMIT) -> None:
        self._rules = rules
        self._limit = limit
        self._events = RawEvents(limit)
        self._shared: dict[str, bytes] = {}
        self._spent = b""
        self._visible = PartialMessage()
        self._has_role = False
        self._passes_all = False
        self.has_given_up = False
        """Whether the stream is not edited to its end: it broke off, is too large or cannot be read."""
        self._begin(may_ask=True)

    def _begin(self, *, may_ask: bool, is_first: bool = True) -> None:
        self._is_first = is_first
        self._calls = Calls(self._rules, may_ask=may_ask)
        self._held: list[Held] = []
        self._held_bytes = 0
        self._behind: set[PartialCall] = set()
        self._tail: list[Held] = []
        self._done = b""
        self._finish = b""
        self._usage = b""
        self._waits = not is_first
        self._last = b""
        self.has_ended = False
        """Whether the round has said that it is over."""
        self.is_over = False
        """Whether nothing of the round is to come."""

    @property
    def visible(self) -> bytes:
        return self._visible.json()

    @property
    def spent(self) -> Usage:
        return usage_of(self._spent)

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
        left = self._events.rest()
        if self._passes_all or is_done(left):
            return self._event(left)
        self.is_over = True
        if b"tool_calls" in left:  # half an event means nothing to a client, and this one may not be its own
            left = b""
        if not self.has_ended:
            return self._release() + left
        return b"" if self._waits else left

    def requested(self) -> list[ToolCall]:
        """The calls of the round that the proxy may answer, in their order; none where it broke off."""
        return self._calls.requested(self._finish) if self.has_ended and not self.has_given_up else []

    def shown(self) -> list[ToolCall]:
        return self._calls.shown()

    def message(self, without: Collection[ToolCall] = ()) -> bytes:
        return self._calls.message_without(without)

    def go_on(self, *, may_ask: bool) -> None:
        self._spent = summed(self._spent, self._usage)
        self._events = RawEvents(self._limit)
        self._begin(may_ask=may_ask, is_first=False)

    def settle(self, hidden: Collection[ToolCall]) -> None:
        self._calls.settle(hidden)
        self._last = self._flushed() + self._ended()

    def end(self, comment: bytes = b"") -> bytes:
        """The last bytes of a settled answer; what follows passes. A ``comment`` stands before `[DONE]`."""
        self._passes_all = True
        return self._last + comment + self._done + self._events.rest()

    def _event(self, raw: bytes) -> bytes:
        if self._passes_all:
            return raw
        if self.is_over:
            return b""
        if is_done(raw):
            return self._over(raw)
        chunk = Chunk.read(raw)
        if chunk is None:
            return raw
        if chunk.is_error:
            return self._release() + raw
        if chunk.is_odd:
            return self._show_all() + raw
        if chunk.is_other_choice:
            return raw
        self._note(chunk)
        return self._choice(chunk) if chunk.choices else self._beside(chunk)

    def _over(self, raw: bytes) -> bytes:
        passed = b"" if self.has_ended else self._close()
        self.is_over = True
        if self._waits:
            self._done = raw
            return passed
        self._passes_all = True
        return passed + raw

    def _note(self, chunk: Chunk) -> None:
        """What all rounds share, and what they cost."""
        if self._is_first:
            for name in SHARED:
                if name in chunk.top:
                    self._shared.setdefault(name, bytes(chunk.top[name]))
        else:
            chunk.put(**self._shared)
        if chunk.usage:
            self._usage = chunk.usage
            chunk.put(usage=summed(self._spent, chunk.usage) if self._spent else chunk.usage)

    def _beside(self, chunk: Chunk) -> bytes:
        """A chunk without choices: the usage, or something of the upstream's own."""
        if chunk.usage and self._waits:
            if self.has_ended:
                self._tail.append((chunk, []))
            return b""
        return chunk.encoded()

    def _choice(self, chunk: Chunk) -> bytes:
        delta, calls = chunk.delta, list[Element]()
        if "tool_calls" in delta:
            calls = self._calls.take(delta["tool_calls"])
            delta = {name: raw for name, raw in delta.items() if name != "tool_calls"}
        self._calls.message.add(delta)
        passed = self._show_all() if self._calls.message.is_odd else b""
        if chunk.finish:
            self._finish = chunk.finish
            passed += self._close()
        else:
            passed += self._flushed()
        if chunk.finish and self._waits:
            passed += self._edited(chunk)
            self._tail.append((chunk, calls))
        elif self._may_pass(calls):
            passed += self._shown(chunk, calls)
        else:
            passed += self._edited(chunk)
            self._hold(chunk, calls)
        return passed

    def _hold(self, chunk: Chunk, calls: list[Element]) -> None:
        self._held.append((chunk, calls))
        self._held_bytes += chunk.size
        self._behind.update(call for _, call in calls)

    def _may_pass(self, calls: list[Element]) -> bool:
        """Whether it is known what becomes of these, and nothing that was said of them before is held."""
        return self._calls.are_settled(calls) and not any(call in self._behind for _, call in calls)

    def _close(self) -> bytes:
        """The round is complete: all names are known, and whether anything is to be waited for."""
        self.has_ended = True
        self._calls.name_all()
        self._waits = self._waits or self._calls.is_asking
        return self._flushed()

    def _edited(self, chunk: Chunk) -> bytes:
        """What is text in a chunk that is held for its calls, or for the end that it brings."""
        if not chunk.says(besides=("role", "tool_calls")):
            return b""
        text, calls = chunk.copy(), chunk.delta.get("tool_calls")
        text.keep({name: raw for name, raw in chunk.delta.items() if name != "tool_calls"})
        text.finish_with(b"null")
        text.put(usage=b"null")
        chunk.keep({} if calls is None else {"tool_calls": calls})
        return self._passed(text)

    def _flushed(self) -> bytes:
        """What was held and is settled by now."""
        if not self._held or not self._calls.are_settled(self._held[0][1]):
            return b""
        held, self._held, self._behind = self._held, [], set()
        passed: list[bytes] = []
        for chunk, calls in held:
            if self._may_pass(calls):
                passed.append(self._shown(chunk, calls))
            else:
                self._hold(chunk, calls)
        return b"".join(passed)

    def _shown(self, chunk: Chunk, calls: list[Element]) -> bytes:
        """A chunk whose calls are settled, as the client sees it."""
        seen = self._calls.seen(calls)
        if seen == [delta for delta, _ in calls]:
            return self._passed(chunk)
        delta: dict[str, bytes | Raw] = {**chunk.delta}
        del delta["tool_calls"]
        if seen:
            delta["tool_calls"] = b"[" + b",".join(object_of(each.items()) for each in seen) + b"]"
        chunk.keep(delta)
        return self._passed(chunk, is_optional=True)

    def _passed(self, chunk: Chunk, *, is_optional: bool = False) -> bytes:
        """A chunk on its way to the client; one that says nothing new may be left out where others are."""
        if self._has_role and not self._is_first and "role" in chunk.delta:
            chunk.keep({name: raw for name, raw in chunk.delta.items() if name != "role"})
        says_nothing = not chunk.says(besides=("role",) if self._has_role else ())
        if (is_optional or not self._is_first) and says_nothing and not chunk.finish:
            return b""
        self._has_role = self._has_role or "role" in chunk.delta
        self._visible.add(chunk.delta)
        return chunk.encoded()

    def _ended(self) -> bytes:
        """What ends the answer, for a reason that fits what the client has seen."""
        tail, self._tail = self._tail, []
        for chunk, _ in tail:
            if chunk.finish == b'"tool_calls"' and not self._calls.shows_any:
                chunk.finish_with(b'"stop"')
        return b"".join(
            self._shown(chunk, calls) if chunk.choices else chunk.encoded() for chunk, calls in tail
        )

    def _show_all(self) -> bytes:
        """Some of the answer cannot be read: no call is answered, and the client's go to it as they come."""
        self.has_given_up = True
        self._calls.settle()
        return self._flushed()

    def _release(self) -> bytes:
        """Give up editing: what is surely the client's goes to it, and so does all that comes."""
        self._passes_all = True
        return self._show_all() + self._ended()
