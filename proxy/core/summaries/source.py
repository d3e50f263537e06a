"""What a summary is made from: a gap's transcript in pieces that one call can take.

Anchored: what an earlier summary said stands in the source in its place, and only what is newly cut is told
in full. Rebuilt: told from the originals alone, so that summaries of summaries do not drift. That is every
fourth epoch of a gap, and only where reading them costs at most a fiftieth of what the session's prompts
cost in as many epochs: small budgets fail that test with long messages, for there a rebuild would be most of
what summaries cost. It is waited for by nobody, and takes the old one's place when the next epoch begins.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from proxy.core.budget.prices import UNKNOWN_PRICES
from proxy.core.conversation.messages import Message
from proxy.core.planning.chain import Chain
from proxy.core.planning.exchanges import RunningSummary
from proxy.core.planning.life import distance
from proxy.core.planning.plan import Anchor, Span
from proxy.core.planning.situation import Situation
from proxy.core.summaries.extractive import EARLIER, of_users
from proxy.core.summaries.verification import Evidence, UserRules
from proxy.core.text.words import language_of

PIECE_TOKENS = 12_000
"""Counted tokens of source that one call is asked to summarise (models keep about 90 % of 10,000)."""
_LEAST_PIECE = 200
_PROMPT_TOKENS = 250
"""Counted tokens of the instruction around a piece."""
_USER_CHARACTERS = 1_600
"""Characters that are told of a message of a user's."""
_CHARACTERS_OF = {
    "user": _USER_CHARACTERS,
    "system": _USER_CHARACTERS,
    "developer": _USER_CHARACTERS,
    "assistant": 480,
}
_RESULT, _ARGUMENTS = 160, 96
"""And of tool results, and of a call's arguments: most of an agent's tokens, and soon stale. What is exact in
them is the ledger's business, and reading them once more to say less would be most of a summary's price."""
_CHARACTERS_OF_TOKEN = 3
"""At least, in nearly every text; what has fewer makes a larger piece."""
_CHARACTERS = 8
"""Of a token, at most, on an average: prose has four or five, and code no more."""
_USUAL_CHARACTERS = 4
"""Of a token of prose."""
_SAMPLE = 8
"""Messages of users by which the language is told."""


@dataclass(frozen=True, slots=True)
class Block:
    """One message, or an earlier summary, as the transcript tells it."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    """Tool calls, each in a line."""
    count: int = 1
    """Messages that an earlier summary is about."""

    @property
    def transcript(self) -> str:
        """The block as the transcript has it."""
        if self.role == EARLIER:
            return f"[earlier summary of {self.count} messages]\n{self.text}"
        return "\n".join([f"[{self.role or 'unknown'}] {self.text}".rstrip(), *self.calls])

    @property
    def user_text(self) -> str:
        """What of it users said; an earlier summary was checked when it was written."""
        if self.role == EARLIER:
            return of_users(self.text)
        return self.text if self.role == "user" else ""


@dataclass(frozen=True)
class Piece:
    """What one call is asked to summarise."""

    blocks: tuple[Block, ...]

    @cached_property
    def text(self) -> str:
        return "\n".join(block.transcript for block in self.blocks)

    @cached_property
    def user_text(self) -> str:
        return "\n".join(block.user_text for block in self.blocks if block.user_text)

    def evidence(self, user_rules: UserRules | None = None) -> Evidence:
        """What its summary is checked against; ``user_rules`` is what users said in all of the gap."""
        return Evidence(self.text, self.user_text, user_rules)

    @property
    def by_role(self) -> list[tuple[str, str]]:
        return [(block.role, "\n".join([block.text, *block.calls])) for block in self.blocks]


@dataclass(frozen=True)
class Source:
    """What one gap's summary is made from."""

    pieces: tuple[Piece, ...]
    tokens: int
    language: str = "en"

    @cached_property
    def whole(self) -> Piece:
        return Piece(tuple(block for piece in self.pieces for block in piece.blocks))

    @cached_property
    def user_rules(self) -> UserRules:
        """What users said in all of it, which each piece's summary is held against."""
        return UserRules(self.whole.user_text)


def source_of(situation: Situation, span: Span, room: int, *, anew: bool = False) -> Source:
    """The transcript of a gap; unless it is read ``anew``, earlier summaries stand for what they summarised.

    ``room`` is the counted tokens that a call may have for its prompt.
    """
    most = _most(room)
    anchors = {} if anew else _anchors(situation, span)
    blocks = list(_blocks(situation, span, anchors, _CHARACTERS_OF_TOKEN * most))
    pieces, piece, filled, tokens = list[Piece](), list[Block](), 0, 0
    for block in blocks:  # in pieces of at most so many tokens; a single block may be larger
        size = situation.count(block.transcript)
        if piece and filled + size > most:
            pieces.append(Piece(tuple(piece)))
            piece, filled = [], 0
        piece.append(block)
        filled, tokens = filled + size, tokens + size
    if piece:
        pieces.append(Piece(tuple(piece)))
    texts = [block.text for block in blocks if block.role == "user"] or [block.text for block in blocks]
    return Source(tuple(pieces), tokens, language_of(" ".join(texts[-_SAMPLE:])))


def answer_piece(answer: str, room: int) -> Piece:
    """One answer, as it is condensed by itself; ``room`` as in :func:`source_of`."""
    return Piece((Block("assistant", _shortened(answer, _CHARACTERS_OF_TOKEN * _most(room))),))


def record_piece(record: RunningSummary, condensed: Mapping[str, str], room: int) -> Piece:
    """A running summary that is to be rewritten, with what was made of its long answers."""
    texts = record.transcript(condensed, _CHARACTERS_OF_TOKEN * _most(room))
    return Piece(tuple(Block(role or EARLIER, text, count=record.count) for role, text in texts))


def blocks_of(situation: Situation, span: Span, *, in_full: bool = False) -> list[Block]:
    """A gap as its summary's source tells it, earlier summaries standing for what they summarised.

    ``in_full``: nothing is shortened.
    """
    return [*_blocks(situation, span, _anchors(situation, span), None if in_full else _USER_CHARACTERS)]


def least_of_originals(situation: Situation, span: Span, room: int) -> tuple[int, int]:
    """How many pieces the originals make at least, and how many tokens; nothing is counted for it."""
    most = _most(room)
    blocks = _blocks(situation, span, {}, _CHARACTERS_OF_TOKEN * most)
    tokens = sum(len(block.transcript) for block in blocks) // _CHARACTERS
    return ceil(tokens / most), tokens


def told_tokens(chain: Chain, start: int, end: int) -> int:
    """Counted tokens that a source has of messages ``start`` up to ``end``, about; nothing is read for it."""

    def most(message: Message) -> int:
        characters = _CHARACTERS_OF.get(message.role, _RESULT) + _ARGUMENTS * len(message.calls)
        return characters // _USUAL_CHARACTERS

    places = range(start, end)
    return sum(min(chain.tokens[place], most(chain.messages[place])) for place in places)


def seal_of(chain: Chain, start: int, end: int) -> bytes:
    """What names the messages ``start`` up to ``end`` at their place, by chain hashes."""
    before = chain.hashes[start - 1] if start else b""
    return hashlib.sha256(before + chain.hashes[end - 1]).digest()


def _most(room: int) -> int:
    return max(min(PIECE_TOKENS, room - _PROMPT_TOKENS), _LEAST_PIECE)


def _anchors(situation: Situation, span: Span) -> dict[int, Anchor]:
    """The summaries that there are of a gap, by where they begin."""
    return {anchor.start: anchor for anchor in situation.anchors_within(*span)}


def _blocks(
    situation: Situation, span: Span, anchors: Mapping[int, Anchor], characters: int | None
) -> Iterator[Block]:
    """``characters`` are the most that is told of one message; None tells all."""

    def told(text: str, most: int) -> str:
        return text if characters is None else _shortened(text, min(most, characters))

    position, end = span
    while position < end:
        if anchor := anchors.get(position):
            yield Block(EARLIER, anchor.text, count=anchor.count)
            position = anchor.end
            continue
        may_be_told = situation.classes.may_be_summarised(position)
        for piece in situation.content(position).pieces() if may_be_told else ():
            calls = (f"[calls {name}] {told(arguments, _ARGUMENTS)}" for _, name, arguments in piece.calls)
            text = told(piece.text, _CHARACTERS_OF.get(piece.role, _RESULT))
            yield Block(piece.role, text, tuple(calls))
        position += 1


def _shortened(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}\n[…]\n{text[-half:]}"


# --- when it is made anew from the originals ---


GENERATIONS = 3
"""Summaries of summaries upon the first one, after which the originals are read again."""
MOST_PIECES = 16
_SHARE = 0.02
"""Of what was paid for prompts since the originals were read last."""


def drifted(situation: Situation) -> list[Anchor]:
    """The summaries that have been summarised often enough to be made anew."""
    anchors = situation.anchors_within(0, len(situation.chain))
    return [anchor for anchor in anchors if anchor.generation >= GENERATIONS]


def worthwhile_originals(situation: Situation, anchor: Anchor, room: int) -> Source | None:
    """What a summary is made anew from, where that pays; ``room`` as in :func:`source_of`.

    Whether it might is asked before anything is counted: a long gap's originals are most of a session.
    """
    pieces, tokens = least_of_originals(situation, anchor.span, room)
    if not _pays(situation, anchor, pieces, tokens):
        return None
    originals = source_of(situation, anchor.span, room, anew=True)
    return originals if _pays(situation, anchor, len(originals.pieces), originals.tokens) else None


def _pays(situation: Situation, anchor: Anchor, pieces: int, tokens: int) -> bool:
    chain, budget, stages = situation.chain, situation.budget, situation.policy.stages
    prices = (situation.conditions.prices or UNKNOWN_PRICES).under(situation.policy.economy)
    requests = sum(message.role == "assistant" for message in chain.messages[anchor.start : anchor.end])
    gone = max(chain.tokens.between(*anchor.span), 1)
    since = min((GENERATIONS + 1) * distance(budget, stages) / gone, 1)
    view = int(budget.limit * (stages.target + stages.compact) / 2)
    cached = requests * prices.cached_prefix(view)
    paid = since * (requests * view - (1 - prices.read_share) * cached)
    return pieces <= MOST_PIECES and tokens <= _SHARE * paid
