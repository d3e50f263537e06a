"""Who answers calls within the proxy: each knows some tools, and is asked for the calls of one request."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from proxy.core.tools.cache import ToolCache
from proxy.telemetry import log_fault, log_warning

_PATIENCE = 10.0
"""Seconds that an answer may take; after them nobody has one."""


class Answerer(Protocol):
    """Answers calls of some tools."""

    @property
    def is_ours(self) -> bool:
        """Whether only the proxy knows these tools, so that their calls never reach the client."""
        ...

    def holds(self, tool: str) -> bool:
        """Whether it may answer calls of a tool; its arguments are not known yet."""
        ...

    def passes(self, tool: str, arguments: str) -> None:
        """Know of a call in the same message that goes to the client."""
        ...

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        """The result of a call, of at most ``room`` counted tokens; None where the client is to make it."""
        ...


class FreshResults:
    """Answers calls whose results are fresh (:mod:`proxy.core.tools`)."""

    is_ours = False

    def __init__(self, cache: ToolCache) -> None:
        self._cache = cache

    def holds(self, tool: str) -> bool:
        """Whether anything of this tool is fresh and may be served."""
        return self._cache.holds(tool)

    def passes(self, tool: str, arguments: str) -> None:
        """Forget what the call makes stale."""
        self._cache = self._cache.after(tool, arguments, served=False)

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        """The result, if it is fresh."""
        fresh = self._cache.answer(tool, arguments)
        if fresh is None:
            return None
        self._cache = self._cache.after(tool, arguments, served=True)
        return fresh.text


@dataclass
class Answerers:
    """All that answer for one request."""

    each: list[Answerer] = field(default_factory=list[Answerer])

    def __bool__(self) -> bool:
        return bool(self.each)

    def holds(self, tool: str) -> bool:
        """Whether one of them may answer calls of a tool."""
        return self._of(tool) is not None

    def is_ours(self, tool: str) -> bool:
        """Whether only the proxy knows a tool."""
        found = self._of(tool)
        return found is not None and found.is_ours

    def passes(self, tool: str, arguments: str) -> None:
        """A call in the same message goes to the client."""
        for each in self.each:
            each.passes(tool, arguments)

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        """The result of a call; None also where a fault of ours keeps it back (law 7)."""
        found = self._of(tool)
        try:
            async with asyncio.timeout(_PATIENCE):
                return await found.answer(tool, arguments, room) if found is not None else None
        except TimeoutError:
            log_warning("a call was not answered in time")
        except Exception as error:  # noqa: BLE001 - law 7: the client makes the call, or the answer ends without
            log_fault("a call could not be answered", error)
        return None

    def _of(self, tool: str) -> Answerer | None:
        return next((each for each in self.each if each.holds(tool)), None)
