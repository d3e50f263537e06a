"""The library of policy files: found by name, `extends` followed, complaints with file, line and nearest key.

A file says only what differs: tables are merged key by key over what it extends, anything else is replaced
whole. The rules themselves are `core/policy/policy.py`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Self, cast

from pydantic import ValidationError

from proxy.adapters.files.toml_file import Location, PolicyError, Table, TomlFile, complaints, nearest
from proxy.core.policy.policy import Policy

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


Stamp = tuple[int, ...]
"""A file at one moment. Two are equal exactly where nothing wrote, replaced or unlocked it.

Of a copy its time of modification may be kept, never that of its change (not so on Windows).
"""


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file, links followed; None where there is none that can be looked at."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: no file system takes such a name
        return None
    if not S_ISREG(found.st_mode):
        return None
    identity = (found.st_dev, found.st_ino)
    return *identity, found.st_size, found.st_mode, found.st_mtime_ns, found.st_ctime_ns


def _is_same_file(one: Path, other: Path) -> bool:
    """Whether both are one file, by whatever names."""
    stamp, another = stamp_of(one), stamp_of(other)
    return stamp is not None and another is not None and stamp[:2] == another[:2]


# --- the library ---


def shipped_policies() -> Path:
    """The directory of the presets: inside an installed package, else at the repository's root."""
    package = Path(__file__).parents[2]
    installed = package / "policies"
    return installed if installed.is_dir() else package.parent / "policies"


def is_path(name_or_path: str) -> bool:
    """Whether a policy is named by the path of its file: what has a separator or ends in `.toml`."""
    return name_or_path.endswith(".toml") or bool({"/", "\\"} & set(name_or_path))


class PolicyFile(TomlFile):
    """One file as it is written, before what it extends."""

    fault = PolicyError

    @property
    def name(self) -> str:
        return self.path.stem

    def error(self, message: str, *locations: Location) -> PolicyError:
        return cast("PolicyError", super().error(message, *locations))

    def validated(self, below: Table, *, is_whole: bool = True) -> tuple[Table, list[PolicyError]]:
        """The file over the table ``below`` without what is wrong, and what that is.

        Where not all is there that it extends, nothing can be said of keys that contradict each other.
        """
        merged, mistakes = _merge(below, self.table), dict[str, PolicyError]()
        if not isinstance(merged.get("extends", ""), str):
            del merged["extends"]  # which whoever followed it has said
        if "name" in merged:
            del merged["name"]
            error = self.error("unknown key `name`; a policy has the name of its file", ("name",))
            mistakes[str(error)] = error
        while True:
            try:
                Policy.model_validate(merged)
                break
            except ValidationError as invalid:
                found = list(complaints(invalid, merged, Policy))
            for complaint in found:
                for location in complaint.locations:
                    merged = _without(merged, location)
                if is_whole or not complaint.is_between:
                    error = self.error(complaint.message, *complaint.locations)
                    mistakes[str(error)] = error
        return merged, sorted(mistakes.values(), key=lambda error: error.line or 0)


class PolicyLibrary:
    """Policies in directories: the first that has a name wins, and the presets stand behind them all.

    Every call reads the files anew.
    """

    def __init__(self, directories: Sequence[Path] = ()) -> None:
        self._directories: tuple[Path, ...] = (*directories, shipped_policies())

    @classmethod
    def of(cls, directory: Path | None) -> Self:
        """The library of `--policies DIR`, if there is one. Raises PolicyError where it is no directory."""
        if directory is not None and not directory.is_dir():
            raise PolicyError(str(directory), None, "is not a directory of policies")
        return cls(() if directory is None else (directory,))

    def names(self) -> list[str]:
        return sorted({file.stem for file in self._files() if _NAME.fullmatch(file.stem)})

    def stamps(self, others: Iterable[Path]) -> Mapping[Path, Stamp | None]:
        """Every policy file, and these beside them, as they are now."""
        return {file: stamp_of(file) for file in (*self._files(), *others)}

    def _files(self) -> Iterator[Path]:
        for directory in self._directories:
            yield from directory.glob("*.toml")

    def load(self, name_or_path: str | Path) -> Policy:
        """A policy by its name, or by a path: what has a separator or ends in `.toml`.

        A file named by its path may extend its neighbours. Raises PolicyError. For people who may read files;
        what a client names goes to `named`.
        """
        return self.read(name_or_path)[0]

    def named(self, name: str) -> Policy:
        """A policy by its name alone, never a path. Raises PolicyError."""
        return self._read_named(name)[0]

    def read(self, name_or_path: str | Path) -> tuple[Policy, PolicyFile]:
        """A policy as `load` finds it, and its own file. Raises PolicyError with every mistake."""
        text = str(name_or_path)
        if isinstance(name_or_path, str) and not is_path(text):
            return self._read_named(text)
        path = Path(name_or_path)
        return self._policy(PolicyFile.read(path), (path.parent, *self._directories))

    def _read_named(self, name: str) -> tuple[Policy, PolicyFile]:
        return self._policy(PolicyFile.read(self._find(name, self._directories)), self._directories)

    def _find(self, name: str, directories: Sequence[Path], without: Path | None = None) -> Path:
        for directory in directories if _NAME.fullmatch(name) else ():
            file = directory / f"{name}.toml"
            if stamp_of(file) and not (without and _is_same_file(file, without)):
                return file
        raise PolicyError(name or '""', None, self._absence(name, without.stem if without else ""))

    def _absence(self, name: str, own: str) -> str:
        """Why there is no policy of a name but perhaps the policy `own`, and which there are."""
        others = [each for each in self.names() if each != own]
        if not _NAME.fullmatch(name):
            stem = Path(name).stem
            return "this is not the name of a policy" + (
                f"; did you mean `{stem}`?" if stem in others else ""
            )
        if name == own:
            return "there is no other policy of that name"
        meant = nearest(name, others) or ";"
        listed = ", ".join(f"`{each}`" for each in others)
        return f"there is no such policy{meant} there are {listed}"

    def _policy(self, file: PolicyFile, directories: Sequence[Path]) -> tuple[Policy, PolicyFile]:
        """Each file over what it extends, checked in turn: a complaint is about the file that caused it.

        A file may extend the next of its own name.
        """
        files, mistakes = [file], list[PolicyError]()
        try:
            while (parent := files[-1].table.get("extends")) is not None:
                files.append(PolicyFile.read(self._parent(parent, files, directories)))
        except PolicyError as error:
            mistakes.append(error)
        merged, is_whole = Table(), not mistakes
        for each in reversed(files):
            merged, found = each.validated(merged, is_whole=is_whole)
            mistakes += found
        if mistakes:
            raise PolicyError.together(mistakes)
        return Policy.model_validate({**merged, "name": file.name}), file

    def _parent(self, name: object, chain: Sequence[PolicyFile], directories: Sequence[Path]) -> Path:
        child = chain[-1]
        if not isinstance(name, str):
            raise child.error("`extends` must be the name of a policy", ("extends",))
        try:
            path = self._find(name, directories, without=child.path)
        except PolicyError as error:
            message = f"`extends = {json.dumps(name, ensure_ascii=False)}`: {error.message}"
            raise child.error(message, ("extends",)) from None
        if any(_is_same_file(path, seen.path) for seen in chain):
            circle = " -> ".join([*(seen.name for seen in chain), name])
            raise child.error(f"policies extend each other in a circle: {circle}", ("extends",))
        return path


def _merge(below: Table, above: Table) -> Table:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both_tables = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = _merge(cast("Table", under), cast("Table", value)) if both_tables else value
    return merged


def _without(table: Table, location: Location) -> Table:
    """The table without a key; without the whole array where the key, or what lacks one, is in an array."""
    key, *rest = location
    inner = table.get(str(key))
    if rest and isinstance(inner, dict):
        return {**table, str(key): _without(cast("Table", inner), tuple(rest))}
    return {name: value for name, value in table.items() if name != key}
