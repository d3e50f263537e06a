"""What is known of an upstream's models: their windows, and how they count.

Windows come from the policy, the price list, the upstream's own model list and, over all of these, from its
refusals: a refusal states what is true today. Ratios are learned from usage. Both act from the next turn on
and live in this process; a plan records what it was made with.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from proxy.core.calibration import STEPS, Ratio
from proxy.core.completion import Usage
from proxy.core.overflow import Overflow
from proxy.core.policy import Policy
from proxy.core.rawjson import elements, integer, members, string
from proxy.engine.known import known_by
from proxy.errors import UnabridgedError
from proxy.lru import Lru, Memory
from proxy.ports import Clock, Upstream

_SHRUNK = 0.75
"""Share of the tokens sent that a refusal without numbers leaves as the window."""
_PLAUSIBLE = 4
"""How far our count may be off: a refusal that states a window past this many times what was sent is none."""
_SAMPLES = 5
"""Samples of usage from which a model's ratio is known well enough (law 1)."""
_LEAST_WINDOW = 256
"""Tokens; what states less is no context window."""
_FADES = 3_600.0
"""Seconds for which a refusal is believed: servers are restarted with other windows."""
_LISTING_BYTES = 2 * 2**20
_LISTING_SECONDS = 5.0
_LISTING_PAUSE = 60.0
"""Seconds after which a caller's list is asked for again, where a model is still unknown."""
_MODEL_BYTES = 2048
"""What a model is reckoned at, its name included."""
_NOTHING = Raw(b"null")
_OK = 200


class Model(msgspec.Struct):
    """What is known of one model for one caller."""

    ratio: Ratio
    """The model's tokens over counted tokens."""
    priced: int | None
    """Context window in tokens by the price list."""
    window: int | None = None
    """Context window in tokens by a refusal."""
    believed_until: float = 0.0
    """Monotonic seconds until which the refusal counts."""
    alternates: bool = False
    """Whether it has refused two user messages in a row."""
    refuses_cache_key: bool = False
    """Whether the upstream does not take ``prompt_cache_key``."""
    refuses_tools: bool = False
    """Whether the upstream does not take ``tools``."""
    refuses_usage: bool = False
    """Whether the upstream does not take ``include_usage``."""

    @property
    def wants_usage(self) -> bool:
        """Whether too few samples are known, and it is not known to refuse being asked."""
        return self.ratio.samples < _SAMPLES and not self.refuses_usage

    def remember_ratio(self, ratio: float) -> None:
        """Start from what a session's last turn was calibrated with, where nothing was learned here yet."""
        if not self.ratio.samples:
            self.ratio.steps = round(ratio * STEPS)

    def learn_usage(self, counted: int, usage: Usage | None) -> None:
        """Compare what we counted with what the upstream did."""
        if usage is None or not usage.prompt_tokens:
            return
        self.ratio.observe(counted, usage.prompt_tokens)
        if self.window is not None and usage.prompt_tokens > self.window:
            self.window = None


class Models:
    """The models behind one upstream, as each caller knows them (law 6: nobody teaches another)."""

    def __init__(
        self, upstream: Upstream, price_list: Callable[[str], int | None], clock: Clock, memory: Memory
    ) -> None:
        self._upstream = upstream
        self._price_list = price_list
        self._clock = clock
        self._known: Lru[tuple[str, str], Model] = Lru(memory, lambda _: _MODEL_BYTES)
        self._listed: Lru[str, int] = Lru(memory)
        self._asked_at: Lru[int, float] = Lru(memory)
        """When the list was asked for, by the hash of the caller's credentials."""

    def of(self, tenant: str, name: str) -> Model:
        """What is known of a model for a caller, to be kept for one request."""
        name = known_by(name)
        key = (tenant, name)
        found = self._known.get(key)
        if found is None:
            found = Model(Ratio.of(name), self._price_list(name))
            self._known.put(key, found)
        return found

    def window(self, model: Model, name: str, policy: Policy) -> int | None:
        """Context window in tokens, or None where nothing is known."""
        if model.window is not None and self._clock.monotonic() > model.believed_until:
            model.window = None
        return model.window or policy.budget.window(name) or model.priced or self._listed.get(known_by(name))

    def learn_refusal(self, model: Model, counted: int, reserve: int, refusal: Overflow) -> bool:
        """Take over what an overflow refusal says, or guess from the fact that there was one.

        Nothing is learned, and False answered, where the refusal cannot be about length: upstreams quote
        what they do not understand, and a request may hold the words of such a refusal. ``counted`` are the
        tokens that were sent, ``reserve`` those that were asked for.
        """
        sent = model.ratio.calibrated(counted)
        if refusal.window and refusal.window > _PLAUSIBLE * sent + reserve:
            return False
        seemed_to_fit = refusal.window is not None and sent + reserve <= refusal.window
        if refusal.prompt_tokens or seemed_to_fit:
            model.ratio.refused(counted, refusal.prompt_tokens)
        stated = refusal.window if refusal.window and refusal.window >= _LEAST_WINDOW else None
        model.window = stated or max(int(min(sent, model.window or sent) * _SHRUNK), _LEAST_WINDOW)
        model.believed_until = self._clock.monotonic() + _FADES
        return True

    def needs_listing(self, model: Model, name: str, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        """Whether the upstream's own list might tell this model's window, and this caller may ask for it."""
        is_known = model.priced or self._listed.get(known_by(name)) is not None
        return not is_known and self._may_ask(headers)

    def _may_ask(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        asked_at = self._asked_at.get(hash(tuple(headers)))
        return asked_at is None or self._clock.monotonic() - asked_at >= _LISTING_PAUSE

    async def read_listing(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Ask ``/v1/models`` for windows, at most once a minute for a caller; many servers state them.

        Nothing is learned where it fails: a server without a list is as good as one without windows in it.
        Who may not see the list keeps nobody else from being answered.
        """
        if not self._may_ask(headers):
            return
        self._asked_at.put(hash(tuple(headers)), self._clock.monotonic())
        try:
            async with asyncio.timeout(_LISTING_SECONDS):
                listing = await self._listing(headers)
        except (UnabridgedError, TimeoutError):
            return
        for model, window in (await asyncio.to_thread(_windows, listing)).items():
            self._listed.put(known_by(model), window)

    async def _listing(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The list's body; nothing where it is an error, or far too large."""
        response = await self._upstream.send("GET", "/models", headers, None)
        body = bytearray()
        try:
            if response.status == _OK:
                async for chunk in response.chunks():
                    body += chunk
                    if len(body) > _LISTING_BYTES:
                        return b""
        finally:
            await response.aclose()
        return bytes(body)


def _windows(listing: bytes) -> dict[str, int]:
    """Windows by model id in a model list, in the words of vLLM, OpenRouter and llama.cpp."""
    windows: dict[str, int] = {}
    for entry in elements((members(listing) or {}).get("data", _NOTHING)) or []:
        model = members(entry) or {}
        meta = members(model.get("meta", _NOTHING)) or {}
        stated = (model.get("context_length"), model.get("max_model_len"), meta.get("n_ctx"))
        window = next((value for value in map(integer, stated) if value and value >= _LEAST_WINDOW), None)
        name = string(model.get("id"))
        if window and name:
            windows[name] = window
    return windows
