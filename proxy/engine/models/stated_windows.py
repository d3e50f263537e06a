"""The context windows that the upstream itself states for its models.

Many servers state them, each at its own endpoint. ``/v1/models`` is asked first, then the endpoints that only
local servers have, outside the API: there the context of the running model counts, not the largest that it
could have. Where no endpoint knows the model, or one is missing (404, 405, 410), they are asked again, later
and later: a model may be pulled, or a server may have been starting. Sources:

- ``/v1/models``: OpenRouter and Together (``context_length``), Groq (``context_window``), vLLM
  (``max_model_len``), Mistral (``max_context_length``), LiteLLM (``max_input_tokens``), llama.cpp
  (``meta.n_ctx``), DeepInfra (``metadata.context_length``)
- Ollama, ``GET /api/ps`` and ``POST /api/show``: https://docs.ollama.com/api
- llama.cpp, ``GET /props``: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
- LM Studio, ``GET /api/v0/models``: https://lmstudio.ai/docs/developer/rest/endpoints
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import cast

import msgspec

from proxy.cache import CacheMemory, Lru
from proxy.core.budget.learning import LEAST_WINDOW
from proxy.core.formats.json import as_mapping, dumps, loads, text_or_empty
from proxy.engine.models.asking import fetch
from proxy.errors import UnabridgedError
from proxy.ports import Clock, Header, Upstream
from proxy.telemetry import log_warning

_LIST = "/models"
_ANSWER_BYTES = 2 * 2**20
_SECONDS = 5.0
"""Seconds that one call may take."""
_PAUSE = 60.0
"""Seconds after which a failed call is repeated."""
_FORBIDDEN = 3_600.0
"""Seconds after which a caller that may not see an answer asks again; others may ask before. Also the longest
pause after which what is missing is asked for again."""
_LOADING = 1.0
"""Seconds after which a server that has not loaded the model yet is asked again."""
_ABSENT = (404, 405, 410)
"""Status codes of an endpoint that the server does not have. Any other 4xx may be about the caller alone."""
_DIGITS = 10
"""A number of so many digits is no window."""
_LINE = 150
"""Estimated bytes of a model's line in a list that is kept."""
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)
_LISTED = ("context_length", "context_window", "max_model_len", "max_context_length", "max_input_tokens")
"""Members of a listed model. The last is a limit of the input alone, so the window may be larger.

OpenRouter's ``top_provider`` is left out: a longer prompt goes to another provider.
"""
_NESTED = (("meta", "n_ctx"), ("metadata", "context_length"))

Headers = Sequence[Header]


class _NotStated(Exception):  # noqa: N818 - it says nothing of the window
    """The server could not answer now; it is asked again after a pause, in seconds."""

    def __init__(self, pause: float, *, is_gone: bool = False) -> None:
        super().__init__(pause)
        self.pause = pause
        self.is_gone = is_gone
        """Whether no endpoint of the server can be reached."""


class Stated(msgspec.Struct):
    """What the upstream says about one model's window to one caller."""

    name: str
    tenant: str = ""
    window: int | None = None
    """Tokens; None where the upstream has not said."""
    pause: float = _PAUSE
    """Seconds after which it is asked again if it does not say."""


class StatedWindows:
    """The windows that one upstream states, asked for with the credentials of a model's user."""

    def __init__(self, upstream: Upstream, clock: Clock, memory: CacheMemory) -> None:
        self._upstream = upstream
        self._clock = clock
        self._stated: Lru[tuple[str, str], Stated] = Lru(memory, lambda stated: 200 + len(stated.name))
        self._missing: dict[str, tuple[float, float]] = {}
        """Endpoints outside the API that the server does not have, whoever asks: when they are asked again
        (monotonic seconds), and for how long not if they are still missing (seconds)."""
        self._logged: set[int] = set()
        """Statuses of the list that were logged."""
        self._ask_after: Lru[tuple[int, int], float] = Lru(memory)
        """When a caller may ask about a model again; monotonic seconds."""
        self._lists: Lru[tuple[int, int], tuple[float, Mapping[str, int]]] = Lru(
            memory, lambda read: 200 + _LINE * len(read[1])
        )
        """When a caller's list is read again (monotonic seconds), for clients choose the models that they
        name; and the windows in it."""

    def of(self, tenant: str, name: str) -> Stated:
        """Return what the upstream says about a model to a caller."""
        return self._stated.get_or_make((tenant, name), lambda: Stated(name, tenant))

    def may_tell(self, stated: Stated, headers: Headers) -> bool:
        """Whether asking for a model's window with this caller's headers may give a new answer."""
        if stated.window is not None:
            return False
        return self._clock.monotonic() >= (self._ask_after.get(_asker(stated, headers)) or 0.0)

    async def ask(self, stated: Stated, headers: Headers) -> None:
        """Ask for a model's window. A caller who may not see it does not stop others from asking."""
        if not self.may_tell(stated, headers):
            return
        asker = _asker(stated, headers)
        self._ask_after.put(asker, self._clock.monotonic() + _PAUSE)
        pauses: list[float] = []
        for place in (self._list, self._ollama, self._llama_cpp, self._lm_studio):
            try:
                found = await place(stated, headers)
            except _NotStated as error:
                pauses.append(error.pause)
                if error.is_gone:
                    break
                continue
            if found is not None:
                stated.window = found
                return
        self._ask_after.put(asker, self._clock.monotonic() + min(pauses, default=stated.pause))
        if not pauses:
            stated.pause = min(2 * stated.pause, _FORBIDDEN)

    async def _list(self, stated: Stated, headers: Headers) -> int | None:
        """Look up the window in the list of models, which covers all of them at once."""
        asker, now = (hash(stated.tenant), hash(tuple(headers))), self._clock.monotonic()
        read_again, windows = self._lists.get(asker) or (0.0, {})
        if stated.name not in windows and now >= read_again:
            listing = await self._answer("GET", _LIST, headers, at_root=False)
            windows = await asyncio.to_thread(lambda: dict(_listed(listing)))
            self._lists.put(asker, (now + _PAUSE, windows))
        return windows.get(stated.name)

    async def _ollama(self, stated: Stated, headers: Headers) -> int | None:
        name = stated.name
        running = await self._answer("GET", "/api/ps", headers)
        if "models" not in running:
            return None
        for model in _models(running, "models"):
            if {name, f"{name}:latest"} & {model.get("name"), model.get("model")}:
                return _window(model.get("context_length"))
        shown = await self._answer("POST", "/api/show", headers, dumps({"model": name}))
        set_to = _NUM_CTX.search(text_or_empty(shown.get("parameters")))
        if set_to is None and shown.get("model_info"):
            raise _NotStated(_LOADING)
        return _window(int(set_to[1])) if set_to else None

    async def _llama_cpp(self, _: Stated, headers: Headers) -> int | None:
        settings = (await self._answer("GET", "/props", headers)).get("default_generation_settings")
        return _window(as_mapping(settings).get("n_ctx"))

    async def _lm_studio(self, stated: Stated, headers: Headers) -> int | None:
        listing = await self._answer("GET", "/api/v0/models", headers)
        for model in _models(listing, "data"):
            if model.get("id") == stated.name:
                if model.get("state") != "loaded":
                    raise _NotStated(_LOADING)
                return _window(model.get("loaded_context_length", model.get("max_context_length")))
        return None

    async def _answer(
        self, method: str, place: str, headers: Headers, body: bytes | None = None, *, at_root: bool = True
    ) -> Mapping[str, object]:
        """Return an endpoint's JSON object, empty where there is none. Raises _Unanswered."""
        missing_until, pause = self._missing.get(place, (0.0, _PAUSE))
        if self._clock.monotonic() < missing_until:
            return {}
        try:
            async with asyncio.timeout(_SECONDS):
                question = method, place, headers, body
                status, content, *_ = await fetch(self._upstream, *question, _ANSWER_BYTES, at_root=at_root)
        except UnabridgedError as error:
            raise _NotStated(_PAUSE, is_gone=True) from error
        except TimeoutError as error:
            raise _NotStated(_PAUSE) from error
        if place == _LIST and status != HTTPStatus.OK and status not in self._logged:
            self._logged.add(status)
            log_warning("the upstream does not list its models", status=status)
        if status >= 500 or status == HTTPStatus.TOO_MANY_REQUESTS:
            raise _NotStated(_PAUSE)
        if status in _ABSENT:
            if at_root and body is None:
                self._missing[place] = self._clock.monotonic() + pause, min(2 * pause, _FORBIDDEN)
        elif status >= 400:
            raise _NotStated(_FORBIDDEN)
        try:
            said = await asyncio.to_thread(loads, content or b"") if status == HTTPStatus.OK else None
        except ValueError:
            return {}
        is_bare = isinstance(said, list)  # as Together's list is
        return {"data": cast("list[object]", said)} if is_bare else as_mapping(said)


def _asker(stated: Stated, headers: Headers) -> tuple[int, int]:
    return hash((stated.tenant, stated.name)), hash(tuple(headers))


def _listed(listing: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Yield the models of a list and their windows; of several numbers the smallest applies.

    Gemini lists names with a prefix that requests may leave out.
    """
    for model in _models(listing, "data"):
        stated = [model.get(member) for member in _LISTED]
        stated += [as_mapping(model.get(member)).get(name) for member, name in _NESTED]
        windows = list(filter(None, map(_window, stated)))
        if windows and (name := text_or_empty(model.get("id"))):
            yield name, min(windows)
            yield name.removeprefix("models/"), min(windows)


def _models(listing: Mapping[str, object], member: str) -> list[Mapping[str, object]]:
    models = listing.get(member)
    return list(map(as_mapping, cast("list[object]", models))) if isinstance(models, list) else []


def _window(value: object) -> int | None:
    """Return a number of tokens that may be a context window, else None; some servers write it as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value >= LEAST_WINDOW else None
