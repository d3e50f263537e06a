"""Passages: the units of search, and how much around a hit is shown.

A question seldom shares words with just the one message that answers it, but often with that message and its
neighbours. So every window of three neighbouring pieces is searched as a whole, and a hit is shown with up to
three more pieces on either side; docs/benchmarks.md has the curve. Long messages are split into pieces of
about the length of a chat message, because length dilutes a score by words.

Positions are those of a chain; a passage never spans messages that are in the view. Keeps law 6 (isolated):
only the request's own messages are available here, so no sibling branch and no other session can be read.
Messages that a policy calls ephemeral cannot be recalled.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.conversation.retention import Classes
from proxy.core.conversation.units import joined
from proxy.core.dialects.dialect import Content
from proxy.core.extraction.observations import answered_commands, in_plain_text
from proxy.core.formats.json import as_mapping, text_or_empty
from proxy.core.lazy import lazy
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Plan
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Retention
from proxy.core.text.cutting import size, start_of, without_data

PIECE_BYTES = 800
"""Maximal bytes of UTF-8 in a piece: about 200 tokens."""
WINDOW = 3
"""Number of pieces that are searched together."""
WINGS = 3
"""Number of pieces shown on either side of a hit, while there is room."""
PASSAGE_BYTES = 2_400
"""Maximal bytes of a passage: about 600 tokens."""
_BEST = 5
_NAMES = ("image_url", "url", "filename", "file_id")
_SCHEME = re.compile(r"\A\s*data:", re.IGNORECASE)
_DATA = 80
"""Most characters of what is said of a part's data."""


class Piece(NamedTuple):
    """A part of a message's text: characters ``start`` to ``end`` (exclusive)."""

    position: int
    start: int
    end: int
    size: int


def pieces_of(position: int, text: str) -> list[Piece]:
    """Split a message's text into pieces; an empty text is one empty piece."""
    whole = size(text)
    if whole <= PIECE_BYTES:
        return [Piece(position, 0, len(text), whole)]
    most = max(1, PIECE_BYTES * len(text) // whole)
    start, ends = 0, list[int]()
    while len(text) - start > most:  # pieces end after a line, else after a word
        least, limit = start + most // 2, start + most
        line, word = text.rfind("\n", least, limit), text.rfind(" ", least, limit)
        start = next((found + 1 for found in (line, word) if found >= 0), limit)
        ends.append(start)
    ends.append(len(text))
    pairs = zip([0, *ends], ends, strict=False)
    return [Piece(position, start, end, size(text[start:end])) for start, end in pairs]


def windows_of(pieces: Sequence[Piece]) -> list[range]:
    """Return the windows to search, as ranges of pieces, in order."""
    windows: list[range] = []
    start = 0
    for stop in range(1, len(pieces) + 1):
        if stop < len(pieces) and pieces[stop].position <= pieces[stop - 1].position + 1:
            continue  # consecutive messages
        last = max(stop - WINDOW, start)
        windows += [range(first, min(first + WINDOW, stop)) for first in range(start, last + 1)]
        start = stop
    return windows


def best_of(windows: Sequence[range], ranked: Sequence[int], most: int = _BEST) -> list[range]:
    """Return the best windows that share no piece; ``ranked`` has indexes of windows, best first."""
    chosen: list[range] = []
    for index in ranked:
        window = windows[index]
        if all(window.stop <= other.start or other.stop <= window.start for other in chosen):
            chosen.append(window)
        if len(chosen) == most:
            break
    return chosen


def widened(pieces: Sequence[Piece], window: range, wings: int = WINGS) -> list[int]:
    """Return the pieces to show for a hit, in order of importance: the window, then its neighbours."""
    shown = list(window)
    left = PASSAGE_BYTES - sum(pieces[index].size for index in window)
    before, after = window.start - 1, window.stop
    for _ in range(wings):
        for index, neighbour in ((before, before + 1), (after, after - 1)):
            if neighbour not in shown or not 0 <= index < len(pieces):
                continue
            is_next = abs(pieces[index].position - pieces[neighbour].position) <= 1
            if is_next and pieces[index].size <= left:
                shown.append(index)
                left -= pieces[index].size
        before, after = before - 1, after + 1
    return shown


@dataclass(frozen=True, slots=True)
class Original:
    """A message as an answer shows it: its author, its exact text and its tool calls."""

    author: str
    text: str


# --- what may be recalled ---


def classes_of(chain: Chain, rules: Sequence[Retention]) -> Classes:
    """Return the retention classes of a chain's messages, with plain-text commands taken for tool calls."""
    content = chain.content
    commands = answered_commands(chain.messages, content) if rules else {}
    observations = [place for place in commands if chain.messages[place].role == "user"]

    def read(place: int) -> Content:
        if place not in commands:
            return content(place)
        return in_plain_text(content(place), is_whole=commands[place].is_whole)

    return Classes(
        rules,
        chain.messages,
        joined(chain.units, observations),
        read,
        lambda place: "tool" if place in observations else chain.messages[place].role,
    )


class PieceCache(Protocol):
    """Caches the pieces of messages, so that later requests decode only new messages."""

    def get(self, key: bytes) -> Sequence[Piece] | None: ...

    def put(self, key: bytes, value: Sequence[Piece]) -> None: ...


@dataclass(frozen=True)
class Reach:
    """What one request may recall. Messages are numbered from 1, the head not counted."""

    chain: Chain
    plan: Plan
    policy: Policy
    cache: PieceCache | None = None
    _originals: dict[int, Original] = field(default_factory=dict[int, Original])

    @lazy
    def positions(self) -> list[int]:
        """Positions of the messages that may be recalled, in order."""
        edited, rules = sorted(self.plan.edited), self.policy.retention
        if not rules:
            return edited
        may_be_quoted = classes_of(self.chain, rules).may_be_quoted
        return [place for place in edited if may_be_quoted(place)]

    @lazy
    def pieces(self) -> list[Piece]:
        pieces = list[Piece]()
        for position in self.positions:
            length = len(self.chain.raws[position])  # outer white space is not part of a chain hash
            key = self.chain.hashes[position] + length.to_bytes(8, "big")
            found = None if self.cache is None else self.cache.get(key)
            if found is None:
                found = pieces_of(position, self.original(position).text)
                if self.cache is not None:
                    self.cache.put(key, found)
            pieces += found
        return pieces

    @lazy
    def windows(self) -> list[range]:
        """The passages that are searched, as ranges of pieces."""
        return windows_of(self.pieces)

    def key(self, window: range) -> bytes:
        """Return an identifier of a passage that depends only on its content and its place."""
        first, last = self.pieces[window.start], self.pieces[window.stop - 1]
        place = f"{first.start}-{last.end}".encode()
        return self.chain.hashes[first.position] + self.chain.hashes[last.position] + place

    def text(self, window: range) -> str:
        """Return the text of a passage, each piece after its author."""
        lines: list[str] = []
        for piece in self.pieces[window.start : window.stop]:
            original = self.original(piece.position)
            lines.append(f"{original.author}: {original.text[piece.start : piece.end]}")
        return "\n".join(lines)

    def original(self, position: int) -> Original:
        """Return a message as the client sent it."""
        if position in self._originals:
            return self._originals[position]
        content = self.chain.content(position)
        author = f"{content.role} {content.name}".strip()
        if content.role in TOOL_ROLES:
            call_ids = self.chain.messages[position].result_of
            tools = (self.chain.tool(call_id, position) for call_id in call_ids if call_id)
            author = f"result of {', '.join(filter(None, tools)) or content.name or 'a tool'}"
        lines = [_shown(part) for part in content.parts]
        if content.refusal:
            lines.append(content.refusal)
        lines += [f"calls {name} with {arguments}" for _, name, arguments in content.calls]
        found = self._originals[position] = Original(author, "\n".join(lines))
        return found


def _shown(part: Mapping[str, Any]) -> str:
    """Return a part's text, or its kind with what names its content; of data only how much it is."""
    if isinstance(text := part.get("text"), str):
        return text
    kind = text_or_empty(part.get("type")) or "a part"
    members = {**part, **as_mapping(part.get(kind))}
    texts = [text_or_empty(members.get(name)) for name in _NAMES]
    if _SCHEME.match(data := text_or_empty(members.get("file_data"))):
        texts.append(data)  # what is encoded without a type says nothing
    urls = [_SCHEME.sub("data:", each) for each in texts]
    texts = [start_of(without_data(each), _DATA) if each.startswith("data:") else each for each in urls]
    names = ", ".join(filter(None, texts))
    return f"[{kind} that is not text: {names}]" if names else f"[{kind} that is not text]"
