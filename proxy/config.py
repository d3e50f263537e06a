"""Settings of the server: from flags, environment variables and a file.

`Settings` lists all of them. Variables and the keys of the file have the same names; those with a `Flag` are
also flags. Flags take precedence over variables, and these over the file. Secrets are never flags, because a
process list shows flags. An unsafe setting prevents the start, and the message says what to set instead.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import SplitResult, parse_qs, urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from proxy.core.policy.values import size
from proxy.environment import default_data_dir, in_plain_words, over, variable, variables, with_files_read
from proxy.errors import SettingsError

_STORE_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "unix", "memory")
DATABASE_PATH: Final = re.compile("(/[0-9]{0,5})?")
"""The path of a store's URL: the number of a database, or nothing."""
ONE_WORD: Final = re.compile("[!-~]+")
"""What a secret in a header may consist of: visible ASCII characters without spaces."""
_ENDPOINT = "/chat/completions"
_LEAST_MEMORY = {"body_memory": 2**20, "cache_memory": 8 * 2**20}
"""Bytes: with less for bodies an ordinary request would be refused; a smaller cache might drop entries before
they are used."""
_LEAST_SECRET = 16
"""Smallest secret in characters; shorter ones could be guessed by somebody who has the store."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token, RFC 9110 clause 5.6.2
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?/?")  # RFC 6454
_HOST_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")

Timeout = Annotated[float, Field(gt=0, allow_inf_nan=False)]


Bytes = Annotated[
    int,
    BeforeValidator(lambda given: given if isinstance(given, str) and given.isdecimal() else size(given)),
    Field(gt=0),
]
"""A number of bytes, or a text such as `512MiB`."""


_Word = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)]
Words = Annotated[
    tuple[_Word, ...],
    BeforeValidator(
        lambda given: list(filter(str.strip, given.split(","))) if isinstance(given, str) else given
    ),
]
"""Words in lower case, as a list or as one text with commas between them."""


@dataclass(frozen=True)
class Flag:
    """Marks a setting that is also a flag of the command line; has its help text."""

    metavar: str | None
    """How the help names the value; None for a switch."""
    help: str


class Settings(BaseModel):
    """The settings of one server. Made by `load`, whose errors name the flag or variable at fault."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    config: Annotated[Path | None, Flag("FILE", "settings, and rules for policies (docs/operations.md)")] = (
        None
    )
    """The settings file; its values apply where neither a flag nor a variable sets them."""
    upstream: Annotated[str, Flag("URL", "base URL of the API behind the proxy (OpenAI's)")] = (
        "https://api.openai.com/v1"
    )
    """The base URL, without a slash at the end."""
    upstream_ca: Annotated[
        Path | None, Flag("FILE", "certificate authorities to trust, instead of the system's")
    ] = None
    """PEM file with the issuers that the upstream's certificate must come from."""
    upstream_cert: Annotated[Path | None, Flag("FILE", "our certificate, where the upstream wants one")] = (
        None
    )
    """PEM file with the certificate and its issuers; it may include the key."""
    upstream_cert_key: Annotated[Path | None, Flag("FILE", "its key, if that is in another file")] = None
    """PEM file, without a password."""
    upstream_http2: Annotated[bool, Flag(None, "speak HTTP/2 to an upstream that does")] = False
    store: Annotated[
        str | None,
        Field(repr=False),
        Flag("URL", "redis://, redis+cluster://, unix://, memory:// (embedded)"),
    ] = None
    """The URL may contain a password."""
    policy: Annotated[
        str, Field(min_length=1), Flag("NAME|FILE", "the policy of requests that name none (default)")
    ] = "default"
    policies: Annotated[Path | None, Flag("DIR", "a directory of policies")] = None
    """Policies in it take precedence over presets of the same name."""
    shadow: Annotated[bool, Flag(None, "decide and record, and forward every request as it came")] = False
    host: Annotated[str, Field(min_length=1), Flag("ADDRESS", "to listen on (127.0.0.1)")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535), Flag("PORT", "to listen on; 0 is any free one (8080)")] = 8080
    workers: Annotated[int, Field(ge=1, le=1_000), Flag("N", "processes (1)")] = 1
    background_calls: Annotated[
        int, Field(ge=0), Flag("N", "calls for summaries at a time beside users' requests (1)")
    ] = 1
    """With 0, such calls are made only while no user is waiting."""
    tenant_header: Annotated[
        str | None, Flag("NAME", "header with which a trusted gateway names the tenant")
    ] = None
    """The header's name, in lower case."""
    public_url: Annotated[str | None, Flag("URL", "where browsers find this server, if elsewhere")] = None
    cors_origin: Annotated[
        Words,
        Flag(
            "ORIGIN",
            "origin of a web page that may ask; repeatable (its own, and on loopback those of this machine)",
        ),
    ] = ()
    allowed_host: Annotated[Words, Flag("NAME", "another host name of this server; repeatable")] = ()
    log_format: Annotated[
        Literal["text", "json"] | None,
        Flag("FORMAT", "of log lines: text or json (text on a terminal)"),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Flag("LEVEL", "debug, info, warning or error (info)"),
    ] = "info"
    log_content: Annotated[bool, Flag(None, "log contents too, at debug level")] = False
    data_dir: Path = Field(default_factory=default_data_dir)
    """Directory of the embedded store and of the secrets that the first start creates."""

    secret: SecretStr | None = None
    """The secret from which names and encryption keys are derived; while it is rotated, `new,old`."""
    admin_token: SecretStr | None = None
    upstream_key: SecretStr | None = None
    """The operator's own key, for calls to the upstream that no client has caused."""

    secret_file: Path | None = None
    """A file with the value of the setting, as an alternative to the value; likewise the next three."""
    admin_token_file: Path | None = None
    upstream_key_file: Path | None = None
    store_file: Path | None = None

    store_timeout: Timeout = 0.5
    """Seconds that one round trip to the store may take."""
    store_breaker: Timeout = 1.0
    """Seconds for which a store that failed is not called."""
    upstream_connect_timeout: Timeout = 10.0
    """Seconds that connecting to the upstream may take."""
    upstream_read_timeout: Timeout = 600.0
    """Seconds for which the upstream may send nothing."""
    http_client: Literal["httptools", "httpx"] = "httptools"
    """The client for the upstream: our own connections where possible, or always the general client."""
    request_timeout: Timeout = 15.0
    """Seconds that a request's head may take to arrive, and for which a body may pause."""
    body_memory: Bytes = Field(default="512MiB", validate_default=True)
    """Bytes of request bodies that this process may hold at the same time."""
    cache_memory: Bytes = Field(default="256MiB", validate_default=True)
    """Estimated bytes that the caches of this process may take."""
    save_timeout: Timeout = 1.0
    """Seconds for which the final event of an appended turn waits for the store."""
    line_lease: Timeout = 10.0
    """Seconds after which the place of a dead worker in a session's queue is given up."""
    background_pause: Timeout = 1.0
    """Seconds without a request after which our own call begins, if it would hold up users."""
    memory_rest: Timeout = 300.0
    """Seconds without a turn after which a conversation is read for memory."""
    drain_timeout: Timeout = 30.0
    """Seconds for which streams may go on after a SIGTERM."""

    @classmethod
    def load(cls, below: Mapping[str, object] | None = None, /, **flags: object) -> Self:
        """Return the settings from `flags`, the environment and the values `below`, in this precedence.

        A flag that is None was not given. Raises SettingsError.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        merged = over(over(given, variables()), below or {})
        known = {name: value for name, value in merged.items() if name in cls.model_fields or name in given}
        try:
            settings = cls(**with_files_read(known))
        except ValidationError as error:
            raise SettingsError(in_plain_words(error, FLAGS.keys() & given.keys())) from None
        settings._check()
        return settings

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets in `secret`, newest first; empty if it is not set."""
        return tuple(self.secret.get_secret_value().split(",")) if self.secret else ()

    @property
    def operator_credentials(self) -> list[tuple[bytes, bytes]]:
        """The header with the operator's own key; no header if there is none."""
        key = self.upstream_key
        return [(b"authorization", f"Bearer {key.get_secret_value()}".encode())] if key else []

    @property
    def shares_store(self) -> bool:
        """Whether other servers may use the same store."""
        return self.store is not None and urlsplit(self.store).scheme != "memory"

    @field_validator("body_memory", "cache_memory")
    @classmethod
    def _is_enough(cls, most: int, about: ValidationInfo) -> int:
        least = _LEAST_MEMORY[about.field_name or ""]
        if most < least:
            raise ValueError(f"must be at least {least // 2**20}MiB")
        return most

    @field_validator("upstream", "public_url")
    @classmethod
    def _is_plain_url(cls, url: str | None, about: ValidationInfo) -> str | None:
        if url is None:
            return None
        parts = split_url(url)
        if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
            example = "api.openai.com/v1" if about.field_name == "upstream" else "models.example.com"
            raise ValueError(f"must be a URL such as https://{example}")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must not hold a user or a password: clients send their own keys")
        if parts.query or parts.fragment:
            raise ValueError("must not have a query or a fragment")
        url = url.rstrip("/")
        if url.endswith(_ENDPOINT):
            raise ValueError(f"must end before {_ENDPOINT}: {url.removesuffix(_ENDPOINT)}")
        return url

    @field_validator("store")
    @classmethod
    def _is_known_store(cls, url: str | None) -> str | None:
        parts = split_url(url) if url is not None else urlsplit("memory://")
        *others, last = (f"{each}://" for each in _STORE_SCHEMES)
        if parts is None:
            raise ValueError("must be a URL such as redis://localhost:6379/0")
        if parts.scheme not in _STORE_SCHEMES:
            raise ValueError(f"must be a URL that begins with {', '.join(others)} or {last}")
        if parts.scheme == "memory" and any(parts[1:]):
            raise ValueError("must end after memory://, which is within the process and has no address")
        if parts.scheme == "unix" and not parts.path:
            raise ValueError("must name a socket, as in unix:///run/valkey.sock")
        if parts.scheme.startswith("redis") and not DATABASE_PATH.fullmatch(parts.path):
            raise ValueError(
                "may end in the number of a database and nothing else, as in redis://localhost:6379/0"
            )
        databases = [parts.path, *parse_qs(parts.query).get("db", [])]
        if parts.scheme.endswith("+cluster") and any(each.strip("/0") for each in databases):
            raise ValueError("names a cluster, which has one database: 0")
        return url

    @field_validator("data_dir")
    @classmethod
    def _is_somewhere(cls, directory: Path) -> Path:
        try:
            return directory.absolute()
        except FileNotFoundError:
            raise ValueError("must be absolute: the working directory has been deleted") from None

    @field_validator("tenant_header")
    @classmethod
    def _is_header_name(cls, name: str | None) -> str | None:
        if name is not None and not _HEADER_NAME.fullmatch(name):
            raise ValueError("must be the name of a header")
        return name and name.lower()

    @field_validator("cors_origin")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        if not all(_ORIGIN.fullmatch(origin) and split_url(origin) for origin in origins):
            raise ValueError("must be an origin such as https://chat.example.com")
        return origins

    @field_validator("allowed_host")
    @classmethod
    def _are_host_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_HOST_NAME.fullmatch, names)):
            raise ValueError("must be a name such as models.example.com, without a port")
        return names

    @field_validator("secret")
    @classmethod
    def _is_whole_and_no_guess(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret and (fault := fault_of_secret(secret.get_secret_value())):
            raise ValueError(fault)
        return secret

    @field_validator("admin_token", "upstream_key")
    @classmethod
    def _is_one_word(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None and not ONE_WORD.fullmatch(secret.get_secret_value()):
            raise ValueError("must be visible ASCII characters without spaces")
        return secret

    def _check(self) -> None:
        """Check for unsafe settings and for contradictions. Raises SettingsError."""
        if not is_loopback(self.host) and self.admin_token is None:
            raise SettingsError(
                f"{variable('host')} = {self.host} lets others in: set {variable('admin_token')} too"
            )
        if self.shares_store and self.secret is None:
            raise SettingsError(
                f"a shared store needs {variable('secret')}, the same one on every server that uses it"
            )
        if self.workers > 1 and self.store is not None and not self.shares_store:
            raise SettingsError(
                f"memory:// is within one process, and {self.workers} workers need a store that they share: "
                "leave --store out, or name another"
            )
        parts = urlsplit(self.upstream)
        for name in ("upstream_ca", "upstream_cert", "upstream_http2"):
            if getattr(self, name) and parts.scheme != "https":
                raise SettingsError(f"{variable(name)} is for an upstream whose URL begins with https://")
        if self.upstream_cert_key is not None and self.upstream_cert is None:
            raise SettingsError(f"{variable('upstream_cert_key')} needs {variable('upstream_cert')} too")
        if is_loopback(parts.hostname or "") and (parts.port or PORTS[parts.scheme]) == self.port:
            raise SettingsError(
                f"the upstream, {parts.netloc}, is this server itself: set {variable('upstream')}"
            )


FLAGS: Mapping[str, Flag] = {
    name: found
    for name, field in Settings.model_fields.items()
    for found in field.metadata
    if isinstance(found, Flag)
}
"""The settings that are also flags of the command line, by name."""


PORTS: Mapping[str, int] = {"http": 80, "https": 443}
"""The ports of URLs that name none, by scheme."""


def fault_of_secret(secret: str) -> str:
    """Return why this cannot be the secret of names, or `new,old` while it is rotated; else an empty text."""
    parts = secret.split(",")
    if len(parts) > 2 or not all(part and part == part.strip() for part in parts):
        return 'must be one secret, or "new,old" while rotating, without spaces'
    if len(parts[0]) < _LEAST_SECRET:
        return f"must be at least {_LEAST_SECRET} characters long: `openssl rand -hex 32` makes one"
    return ""


def is_loopback(host: str) -> bool:
    """Whether `host` is certainly this machine only; of names, that is only localhost."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def split_url(url: str) -> SplitResult | None:
    """Split a URL; None if it is not valid."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is none
    except ValueError:
        return None
    return parts if url.isprintable() and " " not in url else None
