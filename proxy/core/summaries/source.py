"""The source of a summary: a gap's transcript, or its most important sentences, as one call may read it.

Usually it has earlier summaries in place of the messages that they cover. To keep summaries of summaries from
drifting, one is rebuilt from the originals at every fourth epoch of a gap, where that pays
(docs/policies.md, "What is believed of a summary"). No request waits for that.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile
from operator import eq
from typing import Self

from proxy.core.budget.prices import UNKNOWN_PRICES
from proxy.core.conversation.messages import TOOL_ROLES, Message
from proxy.core.lazy import lazy
from proxy.core.planning.chain import Chain
from proxy.core.planning.exchanges import RunningSummary
from proxy.core.planning.life import growth_per_epoch
from proxy.core.planning.plan import Anchor, Span
from proxy.core.planning.situation import Situation
from proxy.core.summaries.extractive import EARLIER, Sentence, most_important, of_users
from proxy.core.summaries.prompt import TOKEN_CHARACTERS
from proxy.core.summaries.reversals import UserRules
from proxy.core.summaries.verification import Evidence
from proxy.core.text.cutting import CUT, ends_of, start_of
from proxy.core.text.words import sentences_in

PIECE_TOKENS = 12_000
"""Maximal counted tokens of source per call (models retain about 90 % of 10,000)."""
_LEAST_PIECE = 200
_PROMPT_TOKENS = 250
"""Counted tokens of the instruction around a piece."""
_USER_CHARACTERS = 1_280
"""Maximal characters of a user's message in a transcript."""
_CHARACTERS_OF = {
    "user": _USER_CHARACTERS,
    "system": _USER_CHARACTERS,
    "developer": _USER_CHARACTERS,
    "assistant": 256,
}
_RESULT, _ARGUMENTS = 128, 96
"""Maximal characters of a tool result, and of a call's arguments. They are most of an agent's tokens and soon
stale; the ledger carries their exact values, and reading them in full would be most of a summary's price."""
_READ = 3
"""Tokens that are read for each one that a summary may have: with most models, less than writing it costs."""
_ENDING = 8
"""Most lines at the end of a tool result that are compared with the end of the result before."""
_USUAL_CHARACTERS = 4
"""Usual characters per token of prose."""


@dataclass(frozen=True, slots=True)
class Block:
    """One message, or an earlier summary, as the transcript has it."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    """Tool calls, one per line."""
    count: int = 1
    """Number of messages that an earlier summary covers."""

    def with_only(self, chosen: Sequence[str]) -> Self:
        """Return the block with only these of its sentences and calls, each in a line where it has lines."""
        texts = [text for text in chosen if text not in self.calls]
        calls = tuple(call for call in self.calls if call in chosen)
        return replace(self, text=("\n" if "\n" in self.text else " ").join(texts), calls=calls)

    @property
    def transcript(self) -> str:
        """The block as the transcript has it."""
        if self.role == EARLIER:
            return f"[earlier summary of {self.count} messages]\n{self.text}"
        return "\n".join([f"[{self.role or 'unknown'}] {self.text}".rstrip(), *self.calls])

    @property
    def user_text(self) -> str:
        """The users' words in it; an earlier summary was checked when it was written."""
        if self.role == EARLIER:
            return of_users(self.text)
        return self.text if self.role == "user" else ""


@dataclass(frozen=True)
class Piece:
    """What one call summarises."""

    blocks: tuple[Block, ...]

    @lazy
    def text(self) -> str:
        return "\n".join(block.transcript for block in self.blocks)

    @lazy
    def user_text(self) -> str:
        return "\n".join(block.user_text for block in self.blocks if block.user_text)

    def evidence(self, user_rules: UserRules | None = None) -> Evidence:
        """Return what its summary is checked against; ``user_rules`` are those of the whole gap."""
        return Evidence(self.text, self.user_text, user_rules)

    @property
    def by_role(self) -> list[tuple[str, str]]:
        return [(block.role, "\n".join([block.text, *block.calls])) for block in self.blocks]


@dataclass(frozen=True)
class Source:
    """The source of one gap's summary."""

    piece: Piece
    tokens: int
    user_text: str
    """What users said in all of the gap, also where less of it is read."""
    language: str = "en"

    @lazy
    def user_rules(self) -> UserRules:
        """The users' rules in the gap, against which what is written of any part of it is checked."""
        return UserRules(self.user_text)


def source_of(situation: Situation, span: Span, room: int, *, anew: bool = False) -> Source:
    """Return the transcript of a gap; unless ``anew``, earlier summaries replace the messages they cover.

    Of a longer one its most important sentences are read: :func:`most_read` tokens, and ``anew`` as many as
    one call may have. ``room``: counted tokens that a call may have for its prompt.
    """
    most, anchors, count = _most(room), {} if anew else _anchors(situation, span), situation.count
    blocks = [*_blocks(situation, span, anchors, TOKEN_CHARACTERS * most)]
    sizes = [count(block.transcript) for block in blocks]
    earlier = sum(size for block, size in zip(blocks, sizes, strict=True) if block.role == EARLIER)
    if not anew:
        most = min(most_read(situation.summary_tokens, earlier), most)
    piece, language = Piece(tuple(blocks)), situation.language_before(span[1])
    tokens, user_text = sum(sizes), piece.user_text
    if tokens > most:
        piece = Piece(tuple(_most_important(blocks, most, earlier, count)))
        tokens = sum(count(block.transcript) for block in piece.blocks)
    return Source(piece, tokens, user_text, language)


def most_read(size: int, earlier: int = 0) -> int:
    """Counted tokens that are read of a gap with ``earlier`` tokens of summaries, for one of ``size``."""
    return min(_READ * size + earlier, PIECE_TOKENS)


def _most_important(
    blocks: Sequence[Block], room: int, earlier: int, count: Callable[[str], int]
) -> list[Block]:
    """Return the blocks with those of their sentences and calls that are worth ``room`` counted tokens.

    Earlier summaries, of ``earlier`` tokens, stay whole, if there is room for all of them. Of a sentence or
    call for which there is no room at all, such as JSON in one line, only the beginning counts.
    """
    stays = {EARLIER} if earlier < room else set[str]()
    left = room - earlier if stays else room

    @cache
    def label(role: str) -> int:
        return count(f"{Block(role, '').transcript} ")

    def short(text: str, role: str) -> str:
        # A character has at most four bytes, and as many tokens: most texts need not be counted.
        most = left // 2
        while most and 4 * len(text) > left and count(text) + label(role) >= left:
            text, most = start_of(text, most), most // 2
        return text

    blocks = [replace(each, calls=tuple(short(call, each.role) for call in each.calls)) for each in blocks]
    sentences = list[Sentence]()
    for number, block in enumerate(blocks):
        if block.role == EARLIER:  # whose lines may be quotes, each with its speaker
            said = [] if stays else block.text.splitlines()
        else:
            said = sentences_in(block.text.replace(CUT, "…\n…"))
        said = [*(short(text, block.role) for text in said), *block.calls]
        sentences += [Sentence(text, block.role, number) for text in said]
    chosen = dict[int, list[str]]()
    for each in most_important(sentences, left, lambda each: count(each.text), label):
        chosen.setdefault(each.number, []).append(each.text)
    return [
        block if block.role in stays else block.with_only(chosen[number])
        for number, block in enumerate(blocks)
        if block.role in stays or number in chosen
    ]


def answer_piece(answer: str, room: int) -> Piece:
    """Return the piece for condensing a single answer; ``room`` as in :func:`source_of`."""
    return Piece((Block("assistant", ends_of(answer, TOKEN_CHARACTERS * _most(room))),))


def record_piece(record: RunningSummary, condensed: Mapping[str, str], room: int) -> Piece:
    """Return the piece for rewriting a running summary; ``condensed`` has its long answers in short."""
    texts = record.transcript(condensed, TOKEN_CHARACTERS * _most(room))
    return Piece(tuple(Block(role or EARLIER, text, count=record.count) for role, text in texts))


def blocks_of(situation: Situation, span: Span, *, in_full: bool = False) -> list[Block]:
    """Return the blocks of a gap, with earlier summaries in place of the messages they cover.

    ``in_full``: nothing is shortened.
    """
    return [*_blocks(situation, span, _anchors(situation, span), None if in_full else _USER_CHARACTERS)]


def estimated_tokens(chain: Chain, start: int, end: int) -> int:
    """Estimate a source's counted tokens for messages ``start`` to ``end``, without reading them."""

    def most(message: Message) -> int:
        characters = _CHARACTERS_OF.get(message.role, _RESULT) + _ARGUMENTS * len(message.calls)
        return characters // _USUAL_CHARACTERS

    places = range(start, end)
    return sum(min(chain.tokens[place], most(chain.messages[place])) for place in places)


def seal_of(chain: Chain, start: int, end: int) -> bytes:
    """Return a digest that identifies the messages ``start`` to ``end`` at their place in the chain."""
    before = chain.hashes[start - 1] if start else b""
    return hashlib.sha256(before + chain.hashes[end - 1]).digest()


def _most(room: int) -> int:
    return max(min(PIECE_TOKENS, room - _PROMPT_TOKENS), _LEAST_PIECE)


def _anchors(situation: Situation, span: Span) -> dict[int, Anchor]:
    """Return the existing summaries of a gap by the position at which they begin."""
    return {anchor.start: anchor for anchor in situation.anchors_within(*span)}


def _blocks(
    situation: Situation, span: Span, anchors: Mapping[int, Anchor], characters: int | None
) -> Iterator[Block]:
    """Yield a gap's blocks; ``characters``: the most of one text; None: texts in full."""

    def told(text: str, most: int) -> str:
        return text if characters is None else ends_of(text, min(most, characters))

    (position, end), ended = span, ""
    while position < end:
        if anchor := anchors.get(position):
            yield Block(EARLIER, anchor.text, count=anchor.count)
            position = anchor.end
            continue
        may_be_summarised = situation.classes.may_be_summarised(position)
        for piece in situation.content(position).pieces() if may_be_summarised else ():
            calls = (f"[calls {name}] {told(arguments, _ARGUMENTS)}" for _, name, arguments in piece.calls)
            text = piece.text or piece.refusal
            if piece.role in TOOL_ROLES and characters is not None:
                # Without the last lines that the result before it ended with too: a shell prompt.
                lines, others = text.rsplit("\n", _ENDING), ended.rsplit("\n", _ENDING)
                same = sum(takewhile(bool, map(eq, lines[:0:-1], others[:0:-1])))
                text, ended = "\n".join(lines[: len(lines) - same]), text
            yield Block(piece.role, told(text, _CHARACTERS_OF.get(piece.role, _RESULT)), tuple(calls))
        position += 1


# --- when a summary is rebuilt from the originals ---


_GENERATIONS = 3
"""Number of summaries built on the first one, after which the originals are read again."""
_SHARE = 0.01
"""Maximal cost of a rebuild, as a share of the cost of prompts since the originals were last read."""


def drifted(situation: Situation) -> list[Anchor]:
    """Return the summaries that have been summarised often enough to be rebuilt."""
    anchors = situation.anchors_within(0, len(situation.chain))
    return [anchor for anchor in anchors if anchor.generation >= _GENERATIONS]


def worthwhile_originals(situation: Situation, anchor: Anchor, room: int) -> Source | None:
    """Return the source for rebuilding a summary; None if that does not pay.

    ``room`` as in :func:`source_of`.
    """
    originals = source_of(situation, anchor.span, room, anew=True)
    chain, budget, stages = situation.chain, situation.budget, situation.policy.stages
    prices = situation.conditions.prices or UNKNOWN_PRICES.under(situation.policy.economy)
    requests = sum(message.role == "assistant" for message in chain.messages[anchor.start : anchor.end])
    gone = max(chain.tokens.between(*anchor.span), 1)
    since = min((_GENERATIONS + 1) * growth_per_epoch(budget, stages) / gone, 1)
    view = int(budget.limit * (stages.target + stages.compact) / 2)
    cached = requests * prices.cached_prefix(view)
    paid = since * (requests * view - (1 - prices.read_share) * cached)
    return originals if originals.tokens <= _SHARE * paid else None
