"""Facts as densely as a model can still read them: a line for each key or kind, directories named once.

Values stand word for word, none twice: what is part of a value that stands there already needs no room.
"""

from collections.abc import Callable, Iterable, Sequence

from proxy.core.ledger.facts import Fact

Count = Callable[[str], int]

_PLURAL = {
    "url": "URLs",
    "email": "e-mails",
    "path": "paths",
    "file": "files",
    "id": "ids",
    "code": "codes",
    "date": "dates",
    "time": "times",
    "amount": "amounts",
    "phone": "phones",
    "version": "versions",
    "error": "errors",
    "name": "names",
    "symbol": "in code",
    "member": "in code",
    "number": "numbers",
    "quoted": "quoted",
    "text": "texts",
}
_SHARED = 6
"""Characters from which a directory is named once for all that it holds."""
_SPARE = 64
"""Facts that are tried after the first that no longer fits."""


class Packing:
    """Facts chosen one by one, the most wanted first, while they fit."""

    def __init__(self, room: int, count: Count, standing: str) -> None:
        self._room = room
        self._count = count
        self._standing = standing
        self._chosen: list[Fact] = []
        self._groups: set[str] = set()
        self._parts: set[str] = set()
        self._left = room

    def fill(self, facts: Iterable[tuple[Fact, bool]]) -> None:
        """Take what fits of ``facts``, in their order; of each, whether it may stand below its directory."""
        spare = _SPARE
        for fact, is_listed in facts:
            if self._is_told(fact.value):
                continue
            if self._take(_below_directory(fact) if is_listed else fact):
                continue
            spare -= 1
            if spare == 0:
                return

    def _is_told(self, value: str) -> bool:
        return value in self._parts or value in self._standing

    def _take(self, fact: Fact) -> bool:
        group = group_of(fact)
        cost = self._count(" " + fact.value)
        if group not in self._groups:
            cost += self._count(group + ":") + 1
        if cost > self._left:
            return False
        self._left -= cost
        self._groups.add(group)
        self._chosen.append(fact)
        self._parts.update(_parts_of(fact))
        return True

    @property
    def text(self) -> str:
        """What was chosen, a line for each group; within the room even where counting apart was too kind."""
        chosen = self._chosen
        text = _packed(chosen)
        while chosen and self._count(text) > self._room:
            chosen = chosen[: len(chosen) - max(len(chosen) // 20, 1)]
            text = _packed(chosen)
        return text


def _below_directory(fact: Fact) -> Fact:
    """A path as a name under its directory, where that has a name worth sharing."""
    directory, slash, name = fact.value.rpartition("/")
    if fact.kind != "path" or fact.key or not name or len(directory) < _SHARED:
        return fact
    return Fact("file", name, directory + slash)


def group_of(fact: Fact) -> str:
    """The label of the line that a fact stands on."""
    return fact.key or _PLURAL[fact.kind]


def _packed(facts: Sequence[Fact]) -> str:
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(group_of(fact), []).append(fact)
    return "\n".join(f"{label}: {_line(members)}" for label, members in groups.items())


def _line(facts: Sequence[Fact]) -> str:
    values = [fact.value for fact in facts]
    return (", " if any(" " in value for value in values) else " ").join(values)


def _parts_of(fact: Fact) -> set[str]:
    """The value, and what can be read off it: of a path its directories, its name, its stem."""
    value = fact.value
    parts = {value}
    if fact.kind in ("path", "file", "url"):
        ends = [at for at, letter in enumerate(value) if letter == "/"]
        parts.update(value[:at] for at in ends)
        parts.update(value[at:] for at in ends)
        parts.update(value[at + 1 :] for at in ends)
        parts.update(value.split("/"))
        parts.add(value.rpartition("/")[2].partition(".")[0])
    return parts
