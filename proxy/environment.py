"""The environment of the settings: variables with our prefix, files named by them, user directories."""

import os
import re
from collections.abc import Collection, Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.core.text.similarity import nearest
from proxy.errors import SettingsError

PREFIX = "UNABRIDGED_"
ADMIN_TOKEN_FILE = "admin-token"  # noqa: S105 - a file's name
"""The file of the admin token in the data directory."""
_FILE = "_file"
ADMIN_TOKEN_SETTINGS = ("admin_token", "admin_token" + _FILE)
OF_OTHERS = ("server",)
"""Variables of commands other than `serve`, by the names of their settings."""
_KUBERNETES_NAME = re.compile(r"\w*_(?:SERVICE|PORT)_\w*")
_KUBERNETES_VALUE = re.compile(r"(?:tcp|udp|sctp)://.*")
"""Recognise variables that Kubernetes sets in every container for services whose names have our prefix."""


def variables() -> dict[str, str]:
    """Return the variables that are set, by the name of the setting; empty ones count as not set."""
    sdks = os.environ.get("OPENAI_BASE_URL")
    ours = {
        name.upper().removeprefix(PREFIX).lower(): value
        for name, value in os.environ.items()
        if value
        and name.upper().startswith(PREFIX)
        and not (_KUBERNETES_NAME.fullmatch(name.upper()) or _KUBERNETES_VALUE.fullmatch(value))
    }
    return {"upstream": sdks, **ours} if sdks else ours


def unknown_variables(settings: Collection[str]) -> list[tuple[str, str]]:
    """Return the variables that name none of `settings`, each with the one probably meant, or empty."""
    unknown = sorted(name for name in variables() if name not in settings and name not in OF_OTHERS)
    similar = ((name, nearest(name, settings)) for name in unknown)
    return [(variable(name), meant and variable(meant)) for name, meant in similar]


def variable(name: str) -> str:
    """Return the name of the variable of a setting."""
    return PREFIX + name.upper()


def overridden_by(values: Iterable[str]) -> frozenset[str]:
    """Return the settings that these names set: by a value, or by a file that contains it (`…_file`)."""
    return frozenset(name.removesuffix(_FILE) for name in values)


def over(above: Mapping[str, object], below: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of `above`, and those of `below` for settings that `above` does not set."""
    decided = overridden_by(above)
    return {**above, **{name: value for name, value in below.items() if not overridden_by([name]) <= decided}}


def with_files_read(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each `…_file` setting by the content of the file.

    Raises SettingsError if a setting is given both ways, or a file cannot be read.
    """
    found = {name: value for name, value in given.items() if not name.endswith(_FILE)}
    for name in sorted(overridden_by(given.keys() - found)):
        if found.get(name) is not None:
            raise SettingsError(f"{variable(name)} and {variable(name)}_FILE are both set; keep one of them")
        file = given[name + _FILE]
        try:
            found[name] = Path(str(file)).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no file has such a name"
            if isinstance(error, UnicodeDecodeError):
                reason = "it is not UTF-8"
            raise SettingsError(f"{variable(name)}_FILE: {file} cannot be read: {reason}") from None
    return found


def default_data_dir() -> Path:
    """Return `unabridged` under the user's data directory. Raises SettingsError for a user without a home."""
    directory = _user_directory("XDG_DATA_HOME", ".local/share")
    if directory is None:
        raise SettingsError(f"this user has no home directory: set {variable('data_dir')}")
    return directory


def default_config() -> Path | None:
    """Return the path of the settings file that is read if no other is named; it need not exist."""
    directory = _user_directory("XDG_CONFIG_HOME", ".config")
    return directory and directory / "config.toml"


def _user_directory(variable: str, usual: str) -> Path | None:
    """Return our directory by the XDG base directory specification; a relative value is ignored.

    None for a user without a home, such as one whom no list of users has.
    """
    named = Path(os.environ.get(variable, ""))
    try:
        return (named if named.is_absolute() else Path.home() / usual) / "unabridged"
    except RuntimeError:
        return None


# --- what is wrong with settings ---


_WORDS = {
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_unicode": "must be UTF-8",
    "string_too_short": "must not be empty",
    "literal_error": "must be {expected}",
    "tuple_type": "must be an array; one of tables is written `[[name]]`",
    "model_type": "must be a table",
    "mapping_type": "must be a table",
    "dict_type": "must be a table",
    "missing": "is required",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:.16g}",
    "value_error": "{error}",
}
"""Messages by pydantic's type of error."""


def in_words(finding: ErrorDetails) -> str:
    """Return a validation error as a predicate, to follow the name of the key. Never contains the value."""
    context = finding.get("ctx", {})
    if finding["type"] == "less_than_equal" and context["le"] == 1:
        return "must be at most 1 (0.8 is 80 %)"
    words = _WORDS.get(finding["type"])
    message = words.format(**context).replace("'", '"') if words else finding["msg"]
    return " ".join(message.replace("Input should be", "must be").split())  # patterns have line breaks


def in_plain_words(error: ValidationError, flags: Container[str]) -> str:
    """Return one line for each error, beginning with the flag if it is one of `flags`, else the variable.

    Never contains a value, which may be a secret.
    """
    lines: list[str] = []
    for finding in error.errors(include_url=False, include_input=False):
        name = "".join(map(str, finding["loc"][:1]))
        flag = f"--{name.replace('_', '-')} " if name in flags else ""
        lines.append((flag or (f"{variable(name)} " if name else "")) + in_words(finding))
    return "\n".join(lines)
