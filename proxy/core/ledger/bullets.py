"""Constraints as the lines of a ledger: each on its own, or those under one title on one line.

People write what is to be remembered under titles, ``HOUSE RULE: no boats.`` Where not every rule would fit,
a title is said once for all sentences that stand under it, as a directory is for its files. The sentences
stay word for word.
"""

from collections.abc import Callable, Iterable, Sequence

from proxy.core.ledger.sentences import title_of

Count = Callable[[str], int]

_AROUND = "\n-"
"""What a ledger says around a sentence; the space after it is part of the next word."""
_ENDS = (".", "!", "\u2026", "\u3002", "\uff01")


def tokens_of(sentences: Iterable[str], count: Count) -> int:
    """Counted tokens that sentences take, each on a line."""
    return sum(count(text + _AROUND) for text in sentences)


def may_share(sentences: Iterable[str]) -> bool:
    """Whether some stand under the same title."""
    titles = [title for title in map(title_of, sentences) if title]
    return len(set(titles)) < len(titles)


class Bullets:
    """Sentences chosen one by one, the most wanted first, while they fit."""

    def __init__(self, count: Count, *, shares: bool) -> None:
        self._count = count
        self._shares = shares
        self._titles: set[str] = set()
        self.chosen: dict[str, None] = {}

    def fill(self, sentences: Iterable[str], room: int) -> int:
        """Take what fits into ``room`` counted tokens and was not taken yet; what that takes."""
        taken = 0
        for text in sentences:
            if text in self.chosen:
                continue
            size = self._size(text)
            if taken + size <= room:
                taken += size
                self.chosen[text] = None
                self._titles.add(title_of(text))
        return taken

    def _size(self, text: str) -> int:
        title = title_of(text)
        is_told = self._shares and title and title in self._titles
        return self._count(f"; {_body(text)}") if is_told else tokens_of([text], self._count)

    def lines(self, order: Sequence[str]) -> tuple[str, ...]:
        """What was chosen, in ``order``; what shares a line stands where the first of it does."""
        lines: dict[str, str] = {}
        for text in order:
            if text not in self.chosen:
                continue
            title = title_of(text) if self._shares else ""
            standing = lines.get(title or text)
            lines[title or text] = _joined(standing, _body(text)) if standing else text
        return tuple(lines.values())


def _body(text: str) -> str:
    return text.removeprefix(title_of(text)).lstrip()


def _joined(line: str, body: str) -> str:
    return f"{line} {body}" if line.endswith(_ENDS) else f"{line}; {body}"
