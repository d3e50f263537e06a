"""What may be recalled: the messages of a request's own chain that the plan in force cuts, clips or clears.

Keeps law 6 (isolated): nothing but the request's own messages is at hand here, so no sibling branch and no
other session can be read. What a policy calls ephemeral stays cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from proxy.core.messages import Content
from proxy.core.plan import Plan
from proxy.core.policy import Policy
from proxy.core.recall.passages import Piece, pieces_of, windows_of
from proxy.core.recall.wording import Original, original_of
from proxy.core.retention import Classes
from proxy.core.situation import Chain


class PieceCache(Protocol):
    """Keeps the pieces of messages, so that a later request decodes only what is new to it."""

    def get(self, key: bytes) -> Sequence[Piece] | None: ...

    def put(self, key: bytes, value: Sequence[Piece]) -> None: ...


@dataclass(frozen=True)
class Reach:
    """What one request may recall. Messages are numbered from 1, the head not counted."""

    chain: Chain
    plan: Plan
    policy: Policy
    cache: PieceCache | None = None

    @cached_property
    def positions(self) -> list[int]:
        """The messages that may be recalled, in order."""
        edited = {place for gap in self.plan.gaps for place in range(gap.start, gap.end)}
        edited |= {replacement.position for replacement in self.plan.replacements}
        may_be_told = self._may_be_told()
        return [place for place in sorted(edited) if may_be_told(place)]

    def _may_be_told(self) -> Callable[[int], bool]:
        if not self.policy.retention:
            return lambda _: True
        units = self.chain.units
        content = self._content
        return Classes(self.policy.retention, self.chain.messages, units, content).may_be_quoted

    @cached_property
    def pieces(self) -> list[Piece]:
        """Their texts in small pieces."""
        return [piece for place in self.positions for piece in self._pieces_at(place)]

    def _pieces_at(self, position: int) -> Sequence[Piece]:
        length = len(self.chain.raws[position])  # outer white space is not part of a chain hash
        key = self.chain.hashes[position] + length.to_bytes(8, "big")
        found = None if self.cache is None else self.cache.get(key)
        if found is None:
            found = pieces_of(position, self.original(position).text)
            if self.cache is not None:
                self.cache.put(key, found)
        return found

    @cached_property
    def windows(self) -> list[range]:
        """The passages that are searched, as ranges of pieces."""
        return windows_of(self.pieces)

    def key(self, window: range) -> bytes:
        """A name of a passage that is a function of what it says, and of where it stands."""
        first, last = self.pieces[window.start], self.pieces[window.stop - 1]
        place = f"{first.start}-{last.end}".encode()
        return self.chain.hashes[first.position] + self.chain.hashes[last.position] + place

    def text(self, window: range) -> str:
        """What a passage says, each message after its author."""
        return "\n".join(self.told(index) for index in window)

    def told(self, index: int) -> str:
        """What a piece says, after its author."""
        piece = self.pieces[index]
        original = self.original(piece.position)
        return f"{original.author}: {original.text[piece.start : piece.end]}"

    def original(self, position: int) -> Original:
        """A message as it was before anything was cut."""
        found = self._originals.get(position)
        if found is None:
            found = self._originals[position] = original_of(self._content(position), self._tool(position))
        return found

    def _content(self, position: int) -> Content:
        return Content.of(self.chain.raws[position])

    def _tool(self, position: int) -> str:
        """The tool whose result a message is: called by this id, nearest before it."""
        answered = self.chain.messages[position].answers
        if answered is None:
            return ""
        for place in range(position - 1, -1, -1):
            if answered in self.chain.messages[place].calls:
                calls = self._content(place).tool_calls()
                return next((name for call, name, _ in calls if call == answered), "")
        return ""

    @cached_property
    def _originals(self) -> dict[int, Original]:
        return {}
