"""Passages: what is searched, and how much around a hit is shown.

A question seldom shares its words with the one message that answers it, but often with that message and its
neighbours. So three neighbouring pieces are searched together, at every place, and a hit is shown with up to
three more on either side; docs/benchmarks.md has the curve. Long messages are cut into pieces of about the
length of a chat message, because a score by words is diluted by length.

Positions are those of a chain; a passage never spans messages that stand in the view. Keeps law 6 (isolated):
nothing but the request's own messages is at hand here, so no sibling branch and no other session can be read.
What a policy calls ephemeral stays cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.conversation.retention import Classes
from proxy.core.conversation.units import joined
from proxy.core.dialects.dialect import Content
from proxy.core.extraction.observations import answered_commands, in_plain_text
from proxy.core.formats.json import text_or_empty
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Plan
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Retention

PIECE_BYTES = 800
"""Of UTF-8: about 200 tokens."""
WINDOW = 3
"""Pieces that are searched together."""
WINGS = 3
"""Pieces that are shown on either side of them, while there is room."""
PASSAGE_BYTES = 2_400
"""Of a passage: about 600 tokens."""
BEST = 5


class Piece(NamedTuple):
    """A part of a message's text, in characters from ``start`` up to and without ``end``."""

    position: int
    start: int
    end: int
    size: int


def pieces_of(position: int, text: str) -> list[Piece]:
    """A message's text in pieces; an empty text is one empty piece."""
    size = len(text.encode(errors="surrogatepass"))
    if size <= PIECE_BYTES:
        return [Piece(position, 0, len(text), size)]
    most = max(1, PIECE_BYTES * len(text) // size)
    start, ends = 0, list[int]()
    while len(text) - start > most:  # they end after a line, else after a word
        least, limit = start + most // 2, start + most
        line, word = text.rfind("\n", least, limit), text.rfind(" ", least, limit)
        start = next((found + 1 for found in (line, word) if found >= 0), limit)
        ends.append(start)
    ends.append(len(text))
    return [
        Piece(position, start, end, len(text[start:end].encode(errors="surrogatepass")))
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def windows_of(pieces: Sequence[Piece]) -> list[range]:
    """Each passage that is searched, as a range of pieces, in order."""
    windows: list[range] = []
    start = 0
    for stop in range(1, len(pieces) + 1):
        if stop < len(pieces) and pieces[stop].position <= pieces[stop - 1].position + 1:
            continue  # messages that follow each other
        last = max(stop - WINDOW, start)
        windows += [range(first, min(first + WINDOW, stop)) for first in range(start, last + 1)]
        start = stop
    return windows


def best_of(windows: Sequence[range], ranked: Sequence[int], most: int = BEST) -> list[range]:
    """The best windows that share no piece, best first; ``ranked`` are indexes of windows."""
    chosen: list[range] = []
    for index in ranked:
        window = windows[index]
        if all(window.stop <= other.start or other.stop <= window.start for other in chosen):
            chosen.append(window)
        if len(chosen) == most:
            break
    return chosen


def widened(pieces: Sequence[Piece], window: range, wings: int = WINGS) -> list[int]:
    """The pieces to show of a hit, in the order in which they matter: itself, then its neighbours."""
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


# --- a message in the words of an answer: its author, its exact text, and the tool calls that it makes ---


@dataclass(frozen=True, slots=True)
class Original:
    """A message as people would read it."""

    author: str
    text: str


def original_of(content: Content, tool: str = "") -> Original:
    """A message in words; ``tool`` is the one whose result it is."""
    author = f"{content.role} {content.name}".strip()
    if content.role in TOOL_ROLES:
        author = f"result of {tool or content.name or 'a tool'}"
    lines = [
        part["text"]
        if isinstance(part.get("text"), str)
        else f"[{text_or_empty(part.get('type')) or 'a part'} that is not text]"
        for part in content.parts
    ]
    if content.refusal:
        lines.append(content.refusal)
    lines += [f"calls {name} with {arguments}" for _, name, arguments in content.calls]
    return Original(author, "\n".join(lines))


# --- what may be recalled ---


def classes_of(chain: Chain, rules: Sequence[Retention]) -> Classes:
    """What the rules say of each message of a chain, commands in plain text and what they brought too."""
    content = chain.content
    commands = answered_commands(chain.messages, content) if rules else {}
    observations = [place for place in commands if chain.messages[place].role == "user"]
    return Classes(
        rules,
        chain.messages,
        joined(chain.units, observations),
        lambda place: in_plain_text(content(place)) if place in commands else content(place),
        lambda place: "tool" if place in observations else chain.messages[place].role,
    )


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
        rules, chain = self.policy.retention, self.chain
        if not rules:
            return sorted(edited)
        may_be_quoted = classes_of(chain, rules).may_be_quoted
        return [place for place in sorted(edited) if may_be_quoted(place)]

    @cached_property
    def pieces(self) -> list[Piece]:
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
        return "\n".join(self.quoted(index) for index in window)

    def quoted(self, index: int) -> str:
        """What a piece says, after its author."""
        piece = self.pieces[index]
        original = self.original(piece.position)
        return f"{original.author}: {original.text[piece.start : piece.end]}"

    def original(self, position: int) -> Original:
        """A message as it was before anything was cut."""
        found = self._originals.get(position)
        if found is None:
            tools = [self._tool(position, call) for call in self.chain.messages[position].answers if call]
            found = original_of(self.chain.content(position), ", ".join(filter(None, tools)))
            self._originals[position] = found
        return found

    def _tool(self, position: int, answered: str) -> str:
        """The tool whose result a message brings: called by this id, nearest before it."""
        for place in range(position - 1, -1, -1):
            if answered in self.chain.messages[place].calls:
                calls = self.chain.content(place).calls
                return next((name for call, name, _ in calls if call == answered), "")
        return ""

    @cached_property
    def _originals(self) -> dict[int, Original]:
        return {}
