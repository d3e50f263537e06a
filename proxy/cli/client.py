"""A client of a running proxy's admin API, for the commands about sessions and memory."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

import httpx2

from proxy.adapters.files.settings import kept_secret, settings_file
from proxy.adapters.files.toml_file import FileError
from proxy.cli.terminal import CommandError, UsageError, add_json_option
from proxy.config import ONE_WORD, is_loopback, split_url
from proxy.core.formats.json import as_mapping, members
from proxy.core.text.cutting import one_line
from proxy.environment import (
    ADMIN_TOKEN_FILE,
    ADMIN_TOKEN_SETTINGS,
    PREFIX,
    default_data_dir,
    over,
    overridden_by,
    variable,
    variables,
    with_files_read,
)
from proxy.errors import SettingsError

DEFAULT_SERVER = "http://127.0.0.1:8080"
_LOOKING, _CHANGING = 30.0, 120.0
"""Timeouts in seconds for reading and for changing; a change may wait for turns and summaries."""
_NAMED = 100
"""Characters of what is wrong that are shown."""
_UNQUOTED = re.compile(r'["$`\\]')
"""What ends or changes a text in quotes, of a program or a shell."""
_UNAUTHORIZED = (401, 403)
_NO_SEGMENT = re.compile(r"[/\\]|\A\.{1,2}\Z")
"""Names that the server takes for an ambiguous path, encoded or not."""
LISTED = 1_000
"""The most sessions that the server lists."""
LONGEST = 3_600
"""The most seconds that a stream of events lasts."""

_OWN_MEMBERS = {"": "epochs", "transcript": "messages", "view": "messages", "explain": "units"}
"""A member that only the answer about this part of a session has; for others it has the part's name."""

Json = dict[str, Any]


def add_server_option(parser: argparse.ArgumentParser) -> None:
    """Add `--server` and `--json`, which all commands have that ask a running proxy."""
    parser.add_argument(
        "--server",
        metavar="URL",
        default=os.environ.get(f"{PREFIX}SERVER") or DEFAULT_SERVER,
        help=f"the proxy's address ({PREFIX}SERVER, else {DEFAULT_SERVER})",
    )
    add_json_option(parser)


def address_of(server: str) -> str:
    """Return the address of a server, without the `/v1` that clients add. Raises UsageError."""
    parts = None if _UNQUOTED.search(server) else split_url(server)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname or any(parts[3:]):
        raise UsageError(f'--server must be a URL such as {DEFAULT_SERVER}, not "{one_line(server, _NAMED)}"')
    if parts.username is not None:
        raise UsageError("--server must not hold a user or a password: the admin token is sent instead")
    return server.rstrip("/").removesuffix("/v1")


class AdminApi:
    """Asks one server, with the admin token. Every method raises CommandError with a message for people."""

    def __init__(self, server: str, token: str) -> None:
        self._server = address_of(server)
        self._api = f"{self._server}/unabridged/v1"
        self._headers = {"Authorization": f"Bearer {token}"}

    @classmethod
    @contextmanager
    def of(cls, args: argparse.Namespace) -> Generator[AdminApi]:
        """Yield a client of the server that the options name, with the token of :func:`admin_token`.

        Raises UsageError for an argument that a request cannot carry, and CommandError if what is done with
        an answer fails, because something within it is not as a proxy of this release has it.
        """
        try:
            "".join(value for value in vars(args).values() if isinstance(value, str)).encode()
        except UnicodeEncodeError as error:
            raise UsageError("an argument is not UTF-8") from error
        api = cls(args.server, admin_token(address_of(args.server)))
        try:
            yield api
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            what = one_line(f"{type(error).__name__}: {error}", _NAMED)
            said = f"{args.server} does not answer as a proxy of this release does ({what})"
            raise CommandError(said) from error

    def sessions(self, limit: int) -> Json:
        """Return the sessions used last, newest first, and how many are left out."""
        return self._get("sessions", "/sessions", {"limit": str(limit)})

    def session(self, name: str, part: str = "") -> Json:
        """Return a session by id or name, or a `part` of it: transcript, view, explain."""
        return self._get(_OWN_MEMBERS.get(part, part), f"{self._path(name)}{'/' if part else ''}{part}", {})

    def export(self, name: str) -> bytes:
        """Return the export of a session as it was received."""
        content = self._ask("GET", f"{self._path(name)}/export").content
        if "session" not in (members(content) or ()):
            raise self._no_proxy()
        return content

    def change(self, name: str, verb: str, body: Json) -> Json:
        """Fork, compact, restore, pause or resume a session."""
        return self._read("id", self._ask("POST", f"{self._path(name)}/{verb}", body=body).content)

    def delete(self, name: str) -> Json:
        return self._read("deleted", self._ask("DELETE", self._path(name)).content)

    def stats(self, since: str, by: str) -> Json:
        return self._get("rows", "/stats", {"since": since, "by": by})

    def notices(self) -> list[Json]:
        return self._get("notices", "/notices", {})["notices"]

    def memory(self, query: Mapping[str, str]) -> Json:
        """Return scopes of memory and their items: those that match a query, or the newest."""
        return self._get("scopes", "/memory", query)

    def item(self, name: str, part: str = "") -> Json:
        return self._get("events" if part else "source", f"{_item_path(name)}{part}", {})

    def restore_item(self, name: str) -> Json:
        return self._read("source", self._ask("POST", f"{_item_path(name)}/restore").content)

    def forget(self, name: str | None = None, **of: str) -> Json:
        """Forget an item, or what is remembered of a scope, a session or a person."""
        path = "/memory" if name is None else _item_path(name)
        return self._read("forgotten", self._ask("DELETE", path, of).content)

    def wait(self, since: float, seconds: float) -> None:
        """Return once a session has changed after ``since`` (seconds since 1970), or after a timeout."""
        lasts = min(max(ceil(seconds), 1), LONGEST)
        params, headers = {"seconds": lasts}, {"Last-Event-ID": f"{since:.3f}"}
        with self._streaming("GET", "/events", seconds + _LOOKING, params=params, headers=headers) as lines:
            next((line for line in lines if line.startswith("event:")), None)

    def maintain(self) -> Iterator[Json]:
        """Run the maintenance of memories now; yield its progress, which is told every few seconds."""
        headers = {"Accept": "application/x-ndjson"}
        with self._streaming("POST", "/memory/maintain", _LOOKING, headers=headers) as lines:
            yield from (self._read("of", line) for line in lines)

    def _path(self, name: str) -> str:
        """Return the path of a session, by its id where the server takes no path with such a name."""
        if not name:
            raise UsageError("the session's id or name is empty")
        if _NO_SEGMENT.search(name):
            found = [each for each in self.sessions(LISTED)["sessions"] if each["name"] == name]
            if not found:
                raise CommandError(f"none of the {LISTED} sessions used last has the name {one_line(name)}")
            if len(found) > 1:
                said = f'"{one_line(name)}" may mean {len(found)} sessions: give an id.'
                raise CommandError(_candidates(said, found))
            name = found[0]["id"]
        return f"/sessions/{quote(name, safe='')}"

    def _get(self, member: str, path: str, query: Mapping[str, str]) -> Json:
        return self._read(member, self._ask("GET", path, query).content)

    def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Json | None = None
    ) -> httpx2.Response:
        """Return the answer to a request. Raises CommandError for an error."""
        with self._reaching(_LOOKING if method == "GET" else _CHANGING) as client:
            response = client.request(method, f"{self._api}{path}", params=query, json=body)
        self._check(response)
        return response

    @contextmanager
    def _streaming(self, method: str, path: str, timeout: float, **options: Any) -> Generator[Iterator[str]]:
        """Yield the lines of an answer as they arrive. Raises CommandError."""
        with (
            self._reaching(timeout) as client,
            client.stream(method, f"{self._api}{path}", **options) as response,
        ):
            self._check(response)
            yield response.iter_lines()

    @contextmanager
    def _reaching(self, timeout: float) -> Generator[httpx2.Client]:
        """Yield an HTTP client; its failures are raised as CommandError."""
        try:
            # An outbound proxy is not asked for this machine: it would hear the token, and reach nobody.
            uses_proxies = not is_loopback(httpx2.URL(self._api).host)
            try:
                client = httpx2.Client(headers=self._headers, timeout=timeout, trust_env=uses_proxies)
            except (ImportError, OSError, ValueError) as error:  # of a variable about proxies or certificates
                said = f"{self._server} cannot be asked with this environment: {error}"
                raise CommandError(said) from error
            with client:
                yield client
        except httpx2.InvalidURL as error:
            raise self._no_proxy() from error
        except (httpx2.HTTPError, UnicodeError) as error:  # UnicodeError: not a valid host name
            raise CommandError(
                f"no proxy answers at {self._server} ({error}); name it with --server"
            ) from error

    def _check(self, response: httpx2.Response) -> None:
        if response.is_success:
            return
        response.read()
        status = response.status_code
        if response.has_redirect_location:
            where = one_line(response.headers["Location"])
            raise CommandError(f"{self._server} sends elsewhere, to {where}; name the proxy with --server")
        error = as_mapping(_object(response.content).get("error"))
        if not isinstance(error.get("message"), str):
            said = f"{self._server} answers {status}, and not as a proxy does; name it with --server"
            raise CommandError(said)
        hint = f" Set {PREFIX}ADMIN_TOKEN to the server's." if status in _UNAUTHORIZED else ""
        said = f"{self._server} answers {status}: {error['message']}{hint}"
        raise CommandError(_candidates(said, cast("list[Json]", error.get("candidates") or [])))

    def _read(self, member: str, content: bytes | str) -> Json:
        """Return the JSON object of an answer, which has such a member. Raises CommandError."""
        answer = _object(content)
        if member not in answer:
            raise self._no_proxy()
        return answer

    def _no_proxy(self) -> CommandError:
        return CommandError(f"{self._server} is not the address of a proxy; name it with --server")


def _object(content: bytes | str) -> Json:
    """Return a JSON object; an empty one if it is anything else."""
    try:
        return dict(as_mapping(json.loads(content)))
    except (ValueError, RecursionError):
        return {}


def _candidates(said: str, sessions: list[Json]) -> str:
    """Return a message with the sessions that may be meant, a line each."""
    lines = [said]
    for each in sessions:
        named = (one_line(each["name"]), one_line(each["began_with"] or ""))
        lines.append("  ".join([each["id"], *filter(None, named)]))
    return "\n".join(lines)


def _item_path(name: str) -> str:
    if not name:
        raise UsageError("the item's id is empty")
    if _NO_SEGMENT.search(name):
        raise CommandError(f"no item has the id {one_line(name)}")
    return f"/memory/{quote(name, safe='')}"


def admin_token(server: str) -> str:
    """Return the admin token for a server's address: the one in the settings, else the one that a start made.

    A server that made its own listens on this machine only, so no other gets that one. Raises OperatorError
    where there is none, or one that no header can carry.
    """
    values, fault = variables(), None
    if "admin_token" not in overridden_by(values):
        try:
            written = settings_file()
        except FileError as error:  # the server may go on as the file was before, with the token it made
            written, fault = None, error
        values = values if written is None else over(values, written.values)
    given = {name: values[name] for name in ADMIN_TOKEN_SETTINGS if name in values}
    if not given:
        if not is_loopback(urlsplit(server).hostname or ""):
            raise CommandError(f"no admin token for {server}; set {variable('admin_token')} to that server's")
        try:
            return kept_secret(Path(values.get("data_dir") or default_data_dir()) / ADMIN_TOKEN_FILE)
        except SettingsError as error:
            why = error if fault is None else fault
            raise CommandError(f"no admin token: {why}; set {variable('admin_token')}") from error
    token = with_files_read(given)["admin_token"]
    if not ONE_WORD.fullmatch(token):
        raise CommandError(
            f"no admin token: {variable('admin_token')} must be visible ASCII characters without spaces"
        )
    return token
