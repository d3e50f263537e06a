"""The files of `serve`: the settings file, and generated secrets.

The settings file can hold every setting that flags and variables can (these take precedence), and rules for
choosing policies. Relative paths in it are relative to its own directory. The secrets (the admin token, and
the secret of names) are created by the first start if they are not set, and read by every later one.
"""

import os
import secrets
import tempfile
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, get_args

from pydantic import SecretStr, ValidationError

from proxy.adapters.files.policies import PolicyLibrary, Stamp, is_path, stamp_of
from proxy.adapters.files.toml_file import FileError, Location, TomlFile, complaints
from proxy.config import ONE_WORD, Settings, fault_of_secret
from proxy.core.policy.policy import PolicyRule
from proxy.environment import ADMIN_TOKEN_FILE, default_config, overridden_by, variables
from proxy.errors import SettingsError


class _FileSettings(Settings):
    """The content of a settings file."""

    use: tuple[PolicyRule, ...] = ()
    data_dir: Path = Path()
    """Without a default that not every user has: another source may set it."""


DEFAULT_POLICY: str = Settings.model_fields["policy"].default
"""The server's policy if no setting names one."""
KEPT_SECRETS = {"secret": "secret", "admin_token": ADMIN_TOKEN_FILE}
"""The settings that are made at the first start where they are not set, and their files in `data_dir`."""
_SECRET_BYTES = 32
_PATHS = {
    name
    for name, field in Settings.model_fields.items()
    if Path in (field.annotation, *get_args(field.annotation))
}


@dataclass(frozen=True)
class SettingsFile:
    """A settings file, as it was read."""

    file: TomlFile
    stamp: Stamp | None
    """The stamp of the file before it was read."""
    decided: frozenset[str]
    """Settings that flags or variables set; the values in the file are ignored."""
    values: Mapping[str, object]
    """The settings that the file sets."""
    rules: tuple[PolicyRule, ...]

    @classmethod
    def read(cls, path: Path, decided: frozenset[str]) -> Self:
        """Read and check a settings file. Raises FileError with the line."""
        before, file = stamp_of(path), TomlFile.read(path)
        if "config" in file.table:
            raise file.error("unknown key `config`: a settings file names no other", ("config",))
        try:
            rules = _FileSettings.model_validate(file.table).use
        except ValidationError as error:
            found = complaints(error, file.table, _FileSettings)
            mistakes = [file.error(each.message, *each.locations) for each in found]
            raise FileError.together(sorted(mistakes, key=lambda each: each.line or 0)) from None
        values = dict[str, object]()
        for name, value in file.table.items():
            if name == "use" or overridden_by([name]) <= decided:
                continue
            is_file = name in _PATHS or (name == "policy" and is_path(str(value)))
            try:  # what is relative is relative to the settings file
                values[name] = str(path.parent / Path(str(value)).expanduser()) if is_file else value
            except RuntimeError:
                why = f"`{name}`: there is no home directory as in {value}"
                raise file.error(why, (name,)) from None
        return cls(file, before, decided, values, rules)

    @property
    def policy(self) -> str:
        """The server's policy, a name or a path; empty if unset, or overridden by a flag or variable."""
        return str(self.values.get("policy", ""))

    def differs_from(self, other: Self) -> list[str]:
        """Return the names of the settings that differ between the two, except the policy."""
        one, two = self.values, other.values
        return sorted(name for name in {*one, *two} - {"policy"} if one.get(name) != two.get(name))

    def check(self, library: PolicyLibrary, known: Container[str] = ()) -> None:
        """Check that the policies it names can be loaded, except the `known` ones. Raises FileError."""
        named: list[tuple[str, Location]] = [(self.policy, ("policy",))] if self.policy else []
        named += [(rule.policy, ("use", place, "policy")) for place, rule in enumerate(self.rules)]
        for name, location in named:
            try:
                if name not in known:
                    _ = library.load(name) if location == ("policy",) else library.named(name)
            except FileError as error:
                reason = error.message if error.file == name else str(error)
                raise self.file.error(f'`policy = "{name}"`: {reason}', location) from None


def load_settings(**flags: object) -> tuple[Settings, SettingsFile | None]:
    """Return the settings from `flags`, the environment and the settings file, and that file, if any.

    Raises SettingsError and FileError.
    """
    written = settings_file(**flags)
    if written is None:
        return Settings.load(**flags), None
    return Settings.load(written.values, **{**flags, "config": written.file.path}), written


def settings_file(**flags: object) -> SettingsFile | None:
    """Return the settings file that `flags` or the environment name, else the user's own, if there is one.

    Raises FileError.
    """
    named = flags.get("config") or variables().get("config")
    try:
        path = Path(str(named)).absolute() if named else default_config()
    except FileNotFoundError as error:
        raise FileError(str(named), None, "cannot be read: the current directory is gone") from error
    if path is None:
        return None
    if not named:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            pass  # one that must not be looked at may be there
    given = [name for name, value in flags.items() if value is not None]
    return SettingsFile.read(path, overridden_by([*given, *variables()]))


def with_secrets(settings: Settings) -> Settings:
    """Return the settings with those secrets that are not set, which the first start makes and keeps.

    Raises SettingsError.
    """
    made = {
        name: SecretStr(persistent_secret(settings.data_dir / file))
        for name, file in KEPT_SECRETS.items()
        if not getattr(settings, name)
    }
    return settings.model_copy(update=made)


def persistent_secret(path: Path) -> str:
    """Return the secret in the file `path`, created on the first call: 43 characters for URLs and headers.

    If several processes create it at the same time, all get the one that was first. Only its owner can read
    the file (0600), and enter a directory that is created for it (0700). Raises SettingsError if it cannot be
    written or read, and for a file that holds no secret.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Written under another name, then linked, so that the file never exists without its content.
            descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # O_EXCL, 0600
            try:
                with os.fdopen(descriptor, "w", encoding="ascii") as file:
                    file.write(secrets.token_urlsafe(_SECRET_BYTES) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):  # another process was first; use its secret
                    path.hardlink_to(draft)
            finally:
                Path(draft).unlink()
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)  # a volume or a copy may have changed the mode
    except OSError as error:
        raise SettingsError(f"{path} cannot be kept: {error.strerror}") from error
    return kept_secret(path)


def kept_secret(path: Path) -> str:
    """Return the secret in the file `path`. Raises SettingsError if it cannot be read, or holds no secret."""
    try:
        secret = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    is_of_names, fault = path.name == KEPT_SECRETS["secret"], ""
    mend = "delete it, and the next start makes a new one"
    if is_of_names:  # whoever deletes it loses every session
        mend = "put it back from a copy: with another secret no stored session is found"
    if not ONE_WORD.fullmatch(secret):
        fault = "holds more than visible ASCII characters" if secret else "is empty"
    elif is_of_names and (fault := fault_of_secret(secret)) and "," not in secret:
        mend = "to keep what was stored with this one, write a new one and a comma before it"
    if fault:
        raise SettingsError(f"{path} {fault}; {mend}")
    return secret
