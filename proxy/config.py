"""Settings: what whoever starts the server decides, by flags and `UNABRIDGED_...` variables (DESIGN 7).

Flags win over the environment. Secrets never are flags: a process list shows those. A setting that would be
unsafe stops the start, and the message says what to set instead.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Container
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from proxy.core.quantities import size
from proxy.errors import SettingsError

PREFIX = "UNABRIDGED_"
STORE_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "unix", "memory")
FLAGS = ("upstream", "store", "policy", "policies", "host", "port", "workers", "tenant_header", "log_content")
"""Settings that the command line sets too."""
_FROM_FILES = ("secret", "admin_token", "upstream_key", "store")
_DATABASE = re.compile(r"(/\d{0,5})?")
_LEAST_CACHE = 8 * 2**20
"""Bytes: with less, what was just learned may be forgotten before it is of use."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token, RFC 9110 clause 5.6.2

Timeout = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _bytes(value: object) -> object:
    return value if isinstance(value, str) and value.isdecimal() else size(value)


Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
"""Bytes, or text such as `512MiB`."""


def default_data_dir() -> Path:
    """`unabridged` under the user's data directory (XDG base directories; a relative one does not count)."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".local" / "share") / "unabridged"


class Settings(BaseSettings):
    """One server. Use `load`, which reports errors in terms of what was set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    upstream: str = Field(
        default="https://api.openai.com/v1",
        validation_alias=AliasChoices(f"{PREFIX}UPSTREAM", "OPENAI_BASE_URL"),
    )
    """Stands for the `/v1` of a request; without a slash at its end."""
    store: str | None = Field(default=None, repr=False)
    """URL of the store; None is the embedded one. It may hold a password."""
    policy: str = Field(default="default", min_length=1)
    """Name or path of the policy for requests that name none."""
    policies: Path | None = None
    """A directory of policies, before the presets."""
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8080, ge=0, le=65535)
    """0 is any free one."""
    workers: int = Field(default=1, ge=1)
    tenant_header: str | None = None
    """Header, in lower case, with which a trusted gateway names the tenant."""
    log_content: bool = False
    """Adds contents to the log, at debug level."""
    data_dir: Path = Field(default_factory=default_data_dir)
    """Home of the embedded store and of what the first start makes."""

    secret: SecretStr | None = None
    """What names and keys of the store are derived from: `new` or, while rotating, `new,old`."""
    admin_token: SecretStr | None = None
    upstream_key: SecretStr | None = None
    """The operator's own key, for scheduled work."""

    secret_file: Path | None = None
    """Instead of the value, a file that holds it; so for the three below."""
    admin_token_file: Path | None = None
    upstream_key_file: Path | None = None
    store_file: Path | None = None

    store_timeout: Timeout = 0.5
    """Seconds that one trip to the store may take."""
    store_breaker: Timeout = 1.0
    """Seconds that the store is left alone after a fault."""
    upstream_connect_timeout: Timeout = 10.0
    """Seconds to connect."""
    upstream_read_timeout: Timeout = 600.0
    """Seconds without a byte from the upstream."""
    http_client: Literal["httptools", "httpx"] = "httptools"
    """What speaks HTTP to the upstream: our own connections, or a general client."""
    request_timeout: Timeout = 15.0
    """Seconds that a request's head may take, and that a body may be silent."""
    body_memory: Bytes = Field(default="512MiB", validate_default=True)
    """Bytes of request bodies that this process holds at a time."""
    cache_memory: Bytes = Field(default="256MiB", validate_default=True)
    """Bytes of what this process remembers of sessions, as it reckons them."""
    save_timeout: Timeout = 1.0
    """Seconds that the last event of an appended turn waits for the store."""
    line_lease: Timeout = 10.0
    """Seconds for which a dead worker's place in a session's line is kept."""
    drain_timeout: Timeout = 30.0
    """Seconds that streams have to end after a SIGTERM."""

    @classmethod
    def load(cls, **flags: object) -> Self:
        """Settings from the environment and `flags`; a flag that is None was not given.

        Raises SettingsError.
        """
        given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
        try:
            return cls(**given)
        except ValidationError as error:
            raise SettingsError(_in_plain_words(error, given)) from None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The parts of `secret`, newest first; empty when there is none."""
        return tuple(self.secret.get_secret_value().split(",")) if self.secret else ()

    @property
    def shares_store(self) -> bool:
        """Whether other servers may use the same store."""
        return self.store is not None and urlsplit(self.store).scheme != "memory"

    @model_validator(mode="before")
    @classmethod
    def _read_files(cls, given: dict[str, object]) -> dict[str, object]:
        found = dict(given)
        for name in _FROM_FILES:
            file = found.pop(f"{name}_file", None)
            if file is None:
                continue
            if found.get(name) is not None:
                raise ValueError(
                    f"{_variable(name)} and {_variable(name)}_FILE are both set; keep one of them"
                )
            try:
                found[name] = Path(str(file)).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise ValueError(f"{_variable(name)}_FILE: {file} cannot be read: {reason}") from None
        return found

    @field_validator("cache_memory")
    @classmethod
    def _is_enough(cls, most: int) -> int:
        if most < _LEAST_CACHE:
            raise ValueError(f"must be at least {_LEAST_CACHE // 2**20}MiB")
        return most

    @field_validator("upstream")
    @classmethod
    def _is_plain_url(cls, url: str) -> str:
        parts = _parts(url)
        if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be a URL such as https://api.openai.com/v1")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not hold a user or a password: clients send their own keys")
        if parts.query or parts.fragment:
            raise ValueError("must not have a query or a fragment")
        return url.rstrip("/")

    @field_validator("store")
    @classmethod
    def _is_known_store(cls, url: str | None) -> str | None:
        parts = _parts(url) if url is not None else urlsplit("memory://")
        *others, last = (f"{each}://" for each in STORE_SCHEMES)
        if parts is None:
            raise ValueError("must be a URL such as redis://localhost:6379/0")
        if parts.scheme not in STORE_SCHEMES:
            raise ValueError(f"must be a URL that begins with {', '.join(others)} or {last}")
        if parts.scheme == "unix" and not parts.path:
            raise ValueError("must name a socket, as in unix:///run/valkey.sock")
        if parts.scheme.startswith("redis") and not _DATABASE.fullmatch(parts.path):
            raise ValueError(
                "may end in the number of a database and nothing else, as in redis://localhost:6379/0"
            )
        if parts.scheme.endswith("+cluster") and parts.path.strip("/0"):
            raise ValueError("names a cluster, which has one database: 0")
        return url

    @field_validator("tenant_header")
    @classmethod
    def _is_header_name(cls, name: str | None) -> str | None:
        if name is not None and not _HEADER_NAME.fullmatch(name):
            raise ValueError("must be the name of a header")
        return name and name.lower()

    @field_validator("secret")
    @classmethod
    def _has_whole_parts(cls, secret: SecretStr | None) -> SecretStr | None:
        parts = secret.get_secret_value().split(",") if secret else ["one"]
        if len(parts) > 2 or not all(part and part == part.strip() for part in parts):
            raise ValueError('must be one secret, or "new,old" while rotating, without spaces')
        return secret

    @field_validator("admin_token", "upstream_key")
    @classmethod
    def _is_one_word(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None and not re.fullmatch(r"[!-~]+", secret.get_secret_value()):
            raise ValueError("must be visible ASCII characters without spaces")
        return secret

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        if not is_loopback(self.host) and self.admin_token is None:
            raise ValueError(
                f"{_variable('host')} = {self.host} lets others in: set {_variable('admin_token')} too"
            )
        if self.shares_store and self.secret is None:
            raise ValueError(
                f"a shared store needs {_variable('secret')}, the same one on every server that uses it"
            )
        return self

    @model_validator(mode="after")
    def _is_not_its_own_upstream(self) -> Self:
        parts = urlsplit(self.upstream)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if is_loopback(parts.hostname or "") and port == self.port:
            raise ValueError(
                f"the upstream, {parts.netloc}, is this server itself: set {_variable('upstream')}"
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`; a name other than localhost may be anywhere."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _parts(url: str) -> SplitResult | None:
    """The parts of a URL; None where it has none, or a port that is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is none
    except ValueError:
        return None
    return parts if url.isprintable() and " " not in url else None


# --- complaints ---

_WORDS = {
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "string_too_short": "must not be empty",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
}


def _in_plain_words(error: ValidationError, given: Container[str]) -> str:
    """One line for each finding, after what was set; never a value, it may be a secret."""
    findings = error.errors(include_url=False, include_input=False)
    return "\n".join(_subject(finding["loc"], given) + _predicate(finding) for finding in findings)


def _subject(location: tuple[int | str, ...], given: Container[str]) -> str:
    """The flag, where it was `given` as one, else the variable."""
    if not location:
        return ""
    variable = str(location[0])
    name = variable.lower().removeprefix(PREFIX.lower())
    if name in FLAGS and name in given:
        return f"--{name.replace('_', '-')} "
    return f"{variable} " if variable.isupper() else f"{_variable(name)} "


def _predicate(finding: ErrorDetails) -> str:
    words = _WORDS.get(finding["type"])
    said = words.format(**finding.get("ctx", {})) if words else finding["msg"]
    return said.removeprefix("Value error, ").replace("Input should be", "must be")
