"""The settings file: what `serve` may be told by flags and variables too, and rules for policies.

Flags and variables win over it. Relative paths in it start at its own directory.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, get_args

from pydantic import ValidationError

from proxy.adapters.files.policies import Mark, PolicyLibrary, is_path, mark
from proxy.adapters.files.policy_errors import complaints
from proxy.adapters.files.toml_file import FileError, Location, PolicyError, TomlFile
from proxy.config import Settings
from proxy.core.policy.policy import Rule
from proxy.environment import decided_by, default_config, variables


class _Written(Settings):
    """What a settings file may hold."""

    use: tuple[Rule, ...] = ()


DEFAULT = Settings().policy
"""The server's policy where nothing decides it."""
_PATHS = {
    name
    for name, field in Settings.model_fields.items()
    if Path in (field.annotation, *get_args(field.annotation))
}


@dataclass(frozen=True)
class SettingsFile:
    """What a settings file says, by itself."""

    file: TomlFile
    mark: Mark | None
    """Of the file, before it was read."""
    decided: frozenset[str]
    """Settings that flags and variables decide, whatever the file says."""
    values: Mapping[str, object]
    """What it decides."""
    rules: tuple[Rule, ...]

    @classmethod
    def read(cls, path: Path, decided: frozenset[str]) -> Self:
        """Read and check a file. Raises FileError, with its line."""
        before, file = mark(path), TomlFile.read(path)
        if "config" in file.table:
            raise file.error("unknown key `config`: a settings file names no other", ("config",))
        try:
            rules = _Written.model_validate(file.table).use
        except ValidationError as error:
            found = complaints(error, file.table, _Written)
            mistakes = [file.error(each.message, *each.locations) for each in found]
            raise FileError.together(sorted(mistakes, key=lambda each: each.line or 0)) from None
        values = dict[str, object]()
        for name, value in file.table.items():
            if name != "use" and not decided_by([name]) <= decided:
                is_relative = name in _PATHS or (name == "policy" and is_path(str(value)))
                values[name] = str(path.parent / Path(str(value)).expanduser()) if is_relative else value
        return cls(file, before, decided, values, rules)

    @property
    def policy(self) -> str:
        """The server's policy, a name or a path; empty where something else decides it."""
        return str(self.values.get("policy", ""))

    def differs_from(self, other: Self) -> list[str]:
        """The settings that both decide differently, but for the policy."""
        one, two = self.values, other.values
        return sorted(name for name in {*one, *two} - {"policy"} if one.get(name) != two.get(name))

    def anew(self) -> Self:
        """The same file as it is now. Raises FileError."""
        return self.read(self.file.path, self.decided)

    def check(self, library: PolicyLibrary, known: Container[str] = ()) -> None:
        """See that there are the policies that it names, but for those that are `known`. Raises FileError."""
        named: list[tuple[str, Location]] = [(self.policy, ("policy",))] if self.policy else []
        named += [(rule.policy, ("use", place, "policy")) for place, rule in enumerate(self.rules)]
        for name, location in named:
            try:
                if name not in known:
                    _ = library.load(name) if location == ("policy",) else library.named(name)
            except PolicyError as error:
                said = error.message if error.file == name else str(error)
                raise self.file.error(f'`policy = "{name}"`: {said}', location) from None


def load_settings(**flags: object) -> tuple[Settings, SettingsFile | None]:
    """Settings from `flags`, the environment and the settings file, if there is one.

    Raises SettingsError and FileError.
    """
    named = flags.get("config") or variables().get("config")
    path = Path(str(named)).absolute() if named else default_config()
    if not (named or path.exists()):
        return Settings.load(**flags), None
    given = [name for name, value in flags.items() if value is not None]
    written = SettingsFile.read(path, decided_by([*given, *variables()]))
    return Settings.load(written.values, **{**flags, "config": path}), written
