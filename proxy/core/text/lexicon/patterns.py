"""Patterns made of lists of words, which are read quickly in texts of either case."""

import re
from collections.abc import Iterator
from itertools import chain, groupby

_SIGN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]", re.DOTALL)
"""An escape, a character class, or a sign that divides a pattern into alternatives."""
_LETTER = re.compile(r"\w(?![?*+{])")
_CHOICE = re.compile(r"\(\?:([^()]+)\)(?![?*+{])")
"""A group of words."""
_BEGINS = re.compile(r"(?:[^\W\d](?![?*+{])){1,3}|\[[^\]]+\](?![?*]|\{0)")
_GROUP = re.compile(r"\(\?(?:-i)?:|\((?P<behind>\?<=)")


def any_of(*words: tuple[str, str]) -> str:
    """Return a pattern of alternatives, of which those for scripts with spaces match whole words only.

    Each argument is a pair: alternatives for scripts with spaces between words, and for scripts without.
    """
    spaced, unspaced = (
        "|".join(_in_one_line(lines) for lines in each if lines) for each in zip(*words, strict=True)
    )
    return "|".join(filter(None, (rf"\b(?:{_by_initial(spaced)})\b", _after_initials(unspaced))))


def any_at_once(words: str) -> str:
    """Return a pattern of the same alternatives, in which those of one initial are tried together."""
    groups: dict[str, list[str]] = {}
    for each in _alternatives(words):
        initial = each[0] if _LETTER.match(each) else each
        groups.setdefault(initial, []).append(each.removeprefix(initial))
    return "|".join(f"{initial}(?:{'|'.join(rest)})" for initial, rest in groups.items())


_ODD = str.maketrans("\u0130\u0131\u017f", "iis")
"""Characters that a pattern which ignores case takes for others; lower case would keep them, or be longer."""


def folded(text: str) -> str:
    """Return a text of the same length as patterns read it that ignore case, each character by itself."""
    if not text.isascii() and ("\u0130" in text or "\u0131" in text or "\u017f" in text):
        text = text.translate(_ODD)
    return text.lower()


_SPELT = re.compile(r"\\.|\(\?P|[^\W\d_]")
"""A letter of a pattern, or what has one that is none."""


def folded_pattern(pattern: str) -> str:
    """Return a pattern that finds in folded texts what the pattern finds where it ignores case."""
    return _SPELT.sub(lambda sign: sign[0].lower() if len(sign[0]) == 1 else sign[0], pattern)


class Wording:
    """The alternatives of :func:`any_of`, searched for in texts in either case.

    They are searched for in the folded text, which takes half the time of a pattern that ignores case.
    """

    def __init__(self, *words: tuple[str, str]) -> None:
        self.pattern = any_of(*words)
        if "(?-i:" in self.pattern:
            raise ValueError("a folded text has no capitals")
        self._folded = re.compile(folded_pattern(self.pattern))

    def search(self, text: str) -> re.Match[str] | None:
        """Return where the first of them stands in a text; the match has it in lower case."""
        return self._folded.search(folded(text))

    def sub(self, by: str, text: str) -> str:
        """Return a text with something else in the place of each."""
        left, at = list[str](), 0
        for match in self._folded.finditer(folded(text)):
            left.append(text[at : match.start()])
            at = match.end()
        return by.join([*left, text[at:]]) if left else text


def beginnings_of(*words: tuple[str, str]) -> str:
    """Return a pattern of the first three letters of the alternatives of :func:`any_of`, in folded texts."""
    lists = (folded_pattern(_in_one_line(lines)) for each in words for lines in each if lines)
    found: dict[str, set[str]] = {}
    for begins in chain.from_iterable(_beginnings(each) for lines in lists for each in _alternatives(lines)):
        initial = begins if begins.startswith("[") else begins[0]
        found.setdefault(initial, set()).add(begins.removeprefix(initial))
    return "|".join(
        initial if "" in rest else f"{initial}(?:{'|'.join(sorted(rest))})" for initial, rest in found.items()
    )


def _beginnings(pattern: str) -> Iterator[str]:
    """How a pattern without alternatives outside its groups begins: with letters, or with one of a class."""
    if begins := _BEGINS.match(pattern):
        yield begins[0]
        return
    group = _GROUP.match(pattern)
    if group is None:
        raise ValueError(f"nobody knows with which letters this begins: {pattern}")
    depth = 1
    end = next(
        sign.end()
        for sign in _SIGN.finditer(pattern, group.end())
        if not (depth := depth + (sign[0] == "(") - (sign[0] == ")"))
    )
    if not group["behind"]:
        for each in _alternatives(pattern[group.end() : end - 1]):
            yield from _beginnings(each)
    if group["behind"] or pattern.startswith("?", end):
        yield from _beginnings(pattern[end:].removeprefix("?"))


def _in_one_line(lines: str) -> str:
    return "".join(map(str.strip, lines.splitlines()))


# Most letters of a text begin no alternative. So that a search need not try each of them at each letter,
# those with one initial are tried together, or all of them only at an initial. Alternatives that do not begin
# with a letter keep their place between the others: where several match, the first one counts.


def _by_initial(pattern: str) -> str:
    """The same alternatives, with those of one initial in a group."""
    found: list[str] = []
    for run in _runs(pattern):
        groups: dict[str, list[str]] = {}
        for each in run:
            groups.setdefault(each[:1].lower(), []).append(each)
        found += (each[0] if len(each) == 1 else f"(?:{'|'.join(each)})" for each in groups.values())
    return "|".join(found)


def _after_initials(pattern: str) -> str:
    """The same alternatives, with those that begin with a letter behind a set of these letters.

    A set is looked up without a step into what follows it; so it takes the letter, on which that looks back.
    """
    found: list[str] = []
    for run in _runs(pattern):
        initials = "".join(dict.fromkeys(each[:1] for each in run))
        rests = {initial: "|".join(each[1:] for each in run if each[0] == initial) for initial in initials}
        behind = "|".join(f"(?<={initial})(?:{rest})" for initial, rest in rests.items())
        found.append(run[0] if len(run) == 1 else f"[{initials}](?:{behind})")
    return "|".join(found)


def _runs(pattern: str) -> Iterator[list[str]]:
    """The alternatives of a pattern: runs of those that begin with a letter, and each other one by itself."""
    for begins, run in groupby(_alternatives(pattern), lambda each: _LETTER.match(each) is not None):
        if begins:
            yield [*run]
        else:
            yield from ([each] for each in run)


def _alternatives(pattern: str) -> Iterator[str]:
    """The alternatives of a pattern, of whose groups only words at the beginning are divided."""
    depth = start = 0
    for sign in _SIGN.finditer(pattern):
        depth += (sign[0] == "(") - (sign[0] == ")")
        if sign[0] == "|" and depth == 0:
            yield from _spread(pattern[start : sign.start()])
            start = sign.end()
    yield from _spread(pattern[start:])


def _spread(pattern: str) -> Iterator[str]:
    """The alternatives that a pattern without alternatives outside its groups stands for."""
    choice = _CHOICE.match(pattern)
    if choice:
        yield from (word + pattern[choice.end() :] for word in _alternatives(choice[1]))
    else:
        yield pattern
