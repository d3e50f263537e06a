"""The library of policy files: found by name, `extends` followed, complaints with file, line and nearest key.

A file says only what differs: tables are merged key by key over what it extends, anything else is replaced
whole. The rules themselves are `core/policy.py`.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

from pydantic import ValidationError

from proxy.adapters.files.complaints import complaint, nearest, syntax_complaint
from proxy.adapters.files.marks import Mark, mark
from proxy.adapters.files.toml_lines import Location, key_lines, line_of
from proxy.core.policy import Policy
from proxy.errors import PolicyError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Table = dict[str, object]


def shipped_policies() -> Path:
    """The directory of the presets: inside an installed package, else at the repository's root."""
    package = Path(__file__).parents[2]
    installed = package / "policies"
    return installed if installed.is_dir() else package.parent / "policies"


@dataclass(frozen=True)
class _PolicyFile:
    """One file as it is written, before what it extends."""

    path: Path
    name: str
    text: str
    table: Table

    def error(self, message: str, *locations: Location) -> PolicyError:
        """A complaint at the first of `locations` that the file itself has."""
        lines = key_lines(self.text) if locations else {}
        exact = (lines[location] for location in locations if location in lines)
        near = (line for location in locations if (line := line_of(location, lines)) is not None)
        return PolicyError(str(self.path), next(exact, next(near, None)), message)


class PolicyLibrary:
    """Policies in directories: the first that has a name wins, and the presets stand behind them all.

    Every call reads the files anew.
    """

    def __init__(self, directories: Sequence[Path] = ()) -> None:
        self._directories: tuple[Path, ...] = (*directories, shipped_policies())
        self._marks: dict[Path, Mark | None] = {}

    @classmethod
    def of(cls, directory: Path | None) -> Self:
        """The library of `--policies DIR`, if there is one. Raises PolicyError where it is no directory."""
        if directory is not None and not directory.is_dir():
            raise PolicyError(str(directory), None, "is not a directory of policies")
        return cls(() if directory is None else (directory,))

    def anew(self) -> Self:
        """The same library, which has not looked at a file yet."""
        return type(self)(self._directories[:-1])

    @property
    def marks(self) -> Mapping[Path, Mark | None]:
        """Every file that was looked for so far, as it was before it was first read; None where none was.

        While these are the same, so is what `load` answers.
        """
        return self._marks

    def names(self) -> list[str]:
        """Every name that can be loaded, in order."""
        files = (file for directory in self._directories for file in directory.glob("*.toml"))
        return sorted({file.stem for file in files if _NAME.fullmatch(file.stem)})

    def load(self, name_or_path: str | Path) -> Policy:
        """A policy by its name, or by a path: what has a separator or ends in `.toml`.

        A file named by its path may extend its neighbours. Raises PolicyError. For people who may read files;
        what a client names goes to `named`.
        """
        text = str(name_or_path)
        if isinstance(name_or_path, str) and not text.endswith(".toml") and not {"/", "\\"} & set(text):
            return self.named(text)
        path = Path(name_or_path)
        self._look_at(path)
        return self._policy(_read(path), (path.parent, *self._directories))

    def named(self, name: str) -> Policy:
        """A policy by its name alone, never a path. Raises PolicyError."""
        return self._policy(_read(self._find(name, self._directories)), self._directories)

    def _look_at(self, path: Path) -> Mark | None:
        found = mark(path)
        self._marks.setdefault(path, found)
        return found

    def _find(self, name: str, directories: Sequence[Path], without: Path | None = None) -> Path:
        left_out = without and self._look_at(without)
        for directory in directories if _NAME.fullmatch(name) else ():
            file = directory / f"{name}.toml"
            found = self._look_at(file)
            if found and not (left_out and found.is_same_file(left_out)):
                return file
        raise PolicyError(name or '""', None, self._absence(name, without.stem if without else ""))

    def _absence(self, name: str, own: str) -> str:
        """Why there is no policy of a name but perhaps the policy `own`, and which may be meant."""
        others = [each for each in self.names() if each != own]
        if not _NAME.fullmatch(name):
            stem = Path(name).stem
            return "this is not the name of a policy" + (
                f"; did you mean `{stem}`?" if stem in others else ""
            )
        such = "other policy of that name" if name == own else "such policy"
        return f"there is no {such}{nearest(name, others)}"

    def _policy(self, file: _PolicyFile, directories: Sequence[Path]) -> Policy:
        """Each file over what it extends, checked in turn: a complaint is about the file that caused it."""
        *ancestors, own = reversed(self._ancestry(file, directories))
        merged: Table = {}
        for ancestor in ancestors:
            merged = _merge(merged, ancestor.table)
            _validated(ancestor, merged)
        return _validated(own, _merge(merged, own.table))

    def _ancestry(self, file: _PolicyFile, directories: Sequence[Path]) -> list[_PolicyFile]:
        """The file, what it extends, what that extends, and so on.

        A file may extend the next of its own name.
        """
        chain = [file]
        while (parent := chain[-1].table.get("extends")) is not None:
            child = chain[-1]
            if not isinstance(parent, str):
                raise child.error("`extends` must be the name of a policy", ("extends",))
            try:
                path = self._find(parent, directories, without=child.path)
            except PolicyError as error:
                said = f"`extends = {json.dumps(parent, ensure_ascii=False)}`: {error.message}"
                raise child.error(said, ("extends",)) from None
            if any(self._is_same(path, seen.path) for seen in chain):
                circle = " -> ".join([*(seen.name for seen in chain), parent])
                raise child.error(f"policies extend each other in a circle: {circle}", ("extends",))
            chain.append(_read(path))
        return chain

    def _is_same(self, one: Path, other: Path) -> bool:
        first, second = self._look_at(one), self._look_at(other)
        return bool(first and second and first.is_same_file(second))


def _read(path: Path) -> _PolicyFile:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PolicyError(str(path), None, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise PolicyError(str(path), line, "is not UTF-8") from error
    try:
        return _PolicyFile(path, path.stem, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(str(path), *syntax_complaint(error, text)) from error
    except (ValueError, RecursionError) as error:  # what Python itself bounds: digits, and depth
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
        raise PolicyError(str(path), None, f"cannot be read: {reason}") from error


def _merge(below: Table, above: Table) -> Table:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both_tables = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = _merge(cast("Table", under), cast("Table", value)) if both_tables else value
    return merged


def _validated(file: _PolicyFile, merged: Table) -> Policy:
    """The policy that `merged` is, or the first complaint about what `file` added to it."""
    if "name" in file.table:
        raise file.error("unknown key `name`; a policy has the name of its file", ("name",))
    try:
        return Policy.model_validate({**merged, "name": file.name})
    except ValidationError as error:
        message, locations = complaint(error, merged)
        raise file.error(message, *locations) from None
