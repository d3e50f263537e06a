"""The library of policy files: finds them by name, follows `extends`, and reports errors with file and line.

A file contains only what differs from the file that it extends: tables are merged key by key, all other
values are replaced. The keys themselves are defined in `core/policy/policy.py`.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG
from typing import cast

from pydantic import ValidationError

from proxy.adapters.files.toml_file import FileError, Location, Table, TomlFile, complaints
from proxy.core.policy.policy import Policy
from proxy.core.text.similarity import did_you_mean

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


Stamp = tuple[int, ...]
"""The state of a file. Two are equal only if it was not written, replaced, or given other permissions.

A copy may keep the modification time (mtime), but not the change time (ctime; except on Windows).
"""


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file, following links; None if it does not exist or cannot be examined."""
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: no file system takes such a name
        return None
    if not S_ISREG(found.st_mode):
        return None
    identity = (found.st_dev, found.st_ino)
    return *identity, found.st_size, found.st_mode, found.st_mtime_ns, found.st_ctime_ns


def _is_same_file(one: Path, other: Path) -> bool:
    stamp, another = stamp_of(one), stamp_of(other)
    return stamp is not None and another is not None and stamp[:2] == another[:2]


# --- the library ---


def shipped_policies() -> Path:
    """Return the directory of the presets: in the installed package, else at the repository's root."""
    package = Path(__file__).parents[2]
    installed = package / "policies"
    return installed if installed.is_dir() else package.parent / "policies"


def is_path(name_or_path: str) -> bool:
    """Return whether this is the path of a policy file: it contains a separator or ends in `.toml`."""
    return name_or_path.endswith(".toml") or bool({"/", "\\"} & set(name_or_path))


class PolicyFile(TomlFile):
    """One policy file as it is written, without the file that it extends."""

    def validated(self, below: Table, *, is_whole: bool = True) -> tuple[Table, list[FileError]]:
        """Return the file merged over the table ``below``, without its invalid parts, and the errors.

        If a file that it extends is missing (not ``is_whole``), contradictions between keys are not reported.
        """
        merged, mistakes = _merge(below, self.table), dict[str, FileError]()
        if not isinstance(merged.get("extends", ""), str):
            del merged["extends"]  # reported already when `extends` was followed
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


def _can_be_listed(directory: Path) -> bool:
    try:
        return directory.is_dir() and os.access(directory, os.R_OK | os.X_OK)
    except OSError:  # what it is in must not be looked at
        return False


class PolicyLibrary:
    """The policies of `--policies DIR`, if given, and the presets; of one name, the directory's is taken.

    Every call reads the files again. Raises FileError if it is not a directory.
    """

    def __init__(self, directory: Path | None = None) -> None:
        if directory is not None and not _can_be_listed(directory):
            raise FileError(str(directory), None, "is not a directory of policies that can be read")
        own = () if directory is None else (directory,)
        self._directories: tuple[Path, ...] = (*own, shipped_policies())

    def names(self) -> list[str]:
        stems = {file.stem for directory in self._directories for file in directory.glob("*.toml")}
        return sorted(filter(_NAME.fullmatch, stems))

    def stamps(self, name_or_path: str, *others: Path) -> dict[Path, Stamp | None]:
        """Return the stamps of the files of all policies, also of those that another directory hides.

        A path is the path of one more policy, which may extend files in its directory. ``others`` are further
        files.
        """
        files, directories = [*others], [*self._directories]
        if is_path(name_or_path):
            files.append(path := Path(name_or_path))
            directories.append(path.parent)
        for directory in directories:
            files += directory.glob("*.toml")
        return {file: stamp_of(file) for file in files}

    def load(self, name_or_path: str | Path) -> Policy:
        """Return a policy by its name, or by a path (it contains a separator or ends in `.toml`).

        A file given by its path may extend files in its directory. Raises FileError. Only for callers who
        may read files: for a name given by a client use `named`.
        """
        return self.read(name_or_path)[0]

    def named(self, name: str) -> Policy:
        """Return a policy by its name; paths are not accepted. Raises FileError."""
        return self._read_named(name)[0]

    def read(self, name_or_path: str | Path) -> tuple[Policy, PolicyFile]:
        """Return a policy as `load` does, and its own file. Raises FileError with all errors found."""
        text = str(name_or_path)
        if isinstance(name_or_path, str) and not is_path(text):
            return self._read_named(text)
        path = Path(name_or_path)
        return self._policy(PolicyFile.read(path), (path.parent, *self._directories))

    def _read_named(self, name: str) -> tuple[Policy, PolicyFile]:
        return self._policy(PolicyFile.read(self._find(name, self._directories)), self._directories)

    def _find(self, name: str, directories: Sequence[Path], without: Path | None = None) -> Path:
        """Return the first file of that name, except `without`, whose policy asks for another of its name."""
        is_name = _NAME.fullmatch(name) is not None
        for directory in directories if is_name else ():
            file = directory / f"{name}.toml"
            if stamp_of(file) and not (without and _is_same_file(file, without)):
                return file
        own = without.stem if without else ""
        others = [each for each in self.names() if each != own]
        if not is_name:
            stem = Path(name).stem
            why = "this is not the name of a policy" + (f"; did you mean `{stem}`?" if stem in others else "")
        elif name == own:
            why = "there is no other policy of that name"
        else:
            listed = ", ".join(f"`{each}`" for each in others)
            why = f"there is no such policy{did_you_mean(name, others) or ';'} there are {listed}"
        raise FileError(name or '""', None, why)

    def _policy(self, file: PolicyFile, directories: Sequence[Path]) -> tuple[Policy, PolicyFile]:
        """Merge each file over the one it extends, checking each in turn, so that an error names its file.

        A file may extend the next file of its own name in the directories.
        """
        files, mistakes = [file], list[FileError]()
        try:
            while (parent := files[-1].table.get("extends")) is not None:
                files.append(PolicyFile.read(self._parent(parent, files, directories)))
        except FileError as error:
            mistakes.append(error)
        merged, is_whole = Table(), not mistakes
        for each in reversed(files):
            merged, found = each.validated(merged, is_whole=is_whole)
            mistakes += found
        if mistakes:
            raise FileError.together(mistakes)
        return Policy.model_validate({**merged, "name": file.path.stem}), file

    def _parent(self, name: object, chain: Sequence[PolicyFile], directories: Sequence[Path]) -> Path:
        child = chain[-1]
        if not isinstance(name, str):
            raise child.error("`extends` must be the name of a policy", ("extends",))
        try:
            path = self._find(name, directories, without=child.path)
        except FileError as error:
            message = f"`extends = {json.dumps(name, ensure_ascii=False)}`: {error.message}"
            raise child.error(message, ("extends",)) from None
        if any(_is_same_file(path, seen.path) for seen in chain):
            circle = " -> ".join([*(seen.path.stem for seen in chain), name])
            raise child.error(f"policies extend each other in a circle: {circle}", ("extends",))
        return path


def _merge(below: Table, above: Table) -> Table:
    """Return a table over another; its keys come first, because the first pattern that matches wins."""
    merged = dict(above)
    for key, under in below.items():
        value = merged.setdefault(key, under)
        if isinstance(under, dict) and isinstance(value, dict):
            merged[key] = _merge(cast("Table", under), cast("Table", value))
    return merged


def _without(table: Table, location: Location) -> Table:
    """Return the table without a key; if the location is inside an array, without the whole array."""
    key, *rest = location
    inner = table.get(str(key))
    if rest and isinstance(inner, dict):
        return {**table, str(key): _without(cast("Table", inner), tuple(rest))}
    return {name: value for name, value in table.items() if name != key}
