"""What is known of an upstream's models: their windows, and how they count.

Windows come from the policy, the price list, the upstream's own model list and, over all of these, from its
refusals: a refusal states what is true today. Ratios are learned from usage. Both act from the next turn on
and live in this process; a plan records what it was made with.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from proxy.core.calibration import STEPS, Ratio
from proxy.core.completion import Usage
from proxy.core.jsonvalue import loads
from proxy.core.messages import as_mapping
from proxy.core.overflow import Overflow
from proxy.core.policy import Policy
from proxy.errors import UnabridgedError
from proxy.ports import Upstream

_SHRUNK = 0.75
"""Share of the tokens sent that a refusal without numbers leaves as the window."""
_LISTING_BYTES = 8 * 2**20
_LISTING_SECONDS = 5.0


class Models:
    """The models behind one upstream."""

    def __init__(self, upstream: Upstream, price_list: Callable[[str], int | None]) -> None:
        self._upstream = upstream
        self._price_list = price_list
        self._learned: dict[str, int] = {}
        self._listed: dict[str, int] = {}
        self._asked: set[str] = set()
        self._ratios: dict[str, Ratio] = {}

    def window(self, model: str, policy: Policy) -> int | None:
        """Context window in tokens, or None where nothing is known."""
        return (
            self._learned.get(model)
            or policy.budget.window(model)
            or self._price_list(model)
            or self._listed.get(model)
        )

    def ratio(self, model: str) -> float:
        """The model's tokens over counted tokens, as known now."""
        return self._ratio(model).value

    def _ratio(self, model: str) -> Ratio:
        return self._ratios.setdefault(model, Ratio.of(model))

    def remember_ratio(self, model: str, ratio: float) -> None:
        """Start from what a session's last turn was calibrated with, where nothing was learned here yet."""
        known = self._ratio(model)
        if not known.samples:
            known.steps = round(ratio * STEPS)

    def learn_usage(self, model: str, counted: int, usage: Usage | None) -> None:
        """Compare what we counted with what the upstream did."""
        if usage is not None and usage.prompt_tokens:
            self._ratio(model).observe(counted, usage.prompt_tokens)

    def learn_refusal(self, model: str, counted: int, refusal: Overflow) -> None:
        """Take over what an overflow refusal says, or guess from the fact that there was one."""
        ratio = self._ratio(model)
        sent = ratio.calibrated(counted)
        if refusal.window:
            self._learned[model] = refusal.window
        if refusal.prompt_tokens or refusal.window:
            ratio.refused(counted, refusal.prompt_tokens)
        if not refusal.window:
            known = min(sent, self._learned.get(model, sent))
            self._learned[model] = max(int(known * _SHRUNK), 1)

    def needs_listing(self, model: str) -> bool:
        """Whether the upstream's own list should be asked for this model's window; says so once."""
        if model in self._asked or self._price_list(model):
            return False
        self._asked.add(model)
        return True

    async def read_listing(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Ask ``/v1/models`` for windows; many servers state them. Nothing is learned where it fails."""
        try:
            async with asyncio.timeout(_LISTING_SECONDS):
                self._listed.update(_windows(loads(await self._listing(headers))))
        except (UnabridgedError, TimeoutError, ValueError, msgspec.MsgspecError):
            return  # a server without a list is as good as one without windows in it

    async def _listing(self, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        response = await self._upstream.send("GET", "/models", headers, None)
        body = bytearray()
        try:
            async for chunk in response.chunks():
                body += chunk
                if len(body) > _LISTING_BYTES:
                    return b"{}"
        finally:
            await response.aclose()
        return bytes(body) if response.status == 200 else b"{}"


def _windows(listing: object) -> dict[str, int]:
    """Windows by model id in a model list, in the words of vLLM, OpenRouter and llama.cpp."""
    windows: dict[str, int] = {}
    data = as_mapping(listing).get("data")
    for entry in cast("list[object]", data) if isinstance(data, list) else ():
        model = as_mapping(entry)
        stated = (
            model.get("context_length"),
            model.get("max_model_len"),
            as_mapping(model.get("meta")).get("n_ctx"),
        )
        window = next((value for value in stated if isinstance(value, int) and value > 0), None)
        if window and isinstance(model.get("id"), str):
            windows[model["id"]] = window
    return windows
