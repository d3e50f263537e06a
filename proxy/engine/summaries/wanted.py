"""The summaries of some gaps: which there are, which are on their way, which could not be had."""

from collections.abc import Callable, Mapping
from functools import partial

from proxy.core.planning.plan import Plan, Span
from proxy.engine.summaries.compactors import Job
from proxy.engine.summaries.pool import Summaries
from proxy.ports import SessionKey


class Wanted:
    """The summaries of some gaps, by gap."""

    def __init__(
        self, summaries: Summaries, addresses: Mapping[Span, str], job: Callable[[Span], Job]
    ) -> None:
        self._summaries = summaries
        self._addresses = addresses
        self._job = job

    @property
    def spans(self) -> tuple[Span, ...]:
        """The gaps."""
        return tuple(self._addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where their summaries are kept."""
        return tuple(self._addresses.values())

    @property
    def under_way(self) -> list[Span]:
        """Those of which a summary is being written."""
        return [span for span, address in self._addresses.items() if self._summaries.is_writing(address)]

    async def recall(self, key: SessionKey) -> None:
        """Fetch those that the store holds."""
        await self._summaries.recall(key, self.addresses)

    def start_missing(self) -> bool:
        """Begin to write those that are not there and have not failed; whether any is still to come."""
        missing = [
            (span, address)
            for span, address in self._addresses.items()
            if self._summaries.ready(address) is None and not self._summaries.has_failed(address)
        ]
        for span, address in missing:
            self._summaries.start(address, partial(self._job, span))
        return bool(missing)

    async def wait(self, seconds: float) -> None:
        """Wait for those that are being written, at most so long."""
        await self._summaries.wait(self.addresses, seconds)

    def texts(self) -> dict[Span, str | None]:
        """What is decided by now: a text, or None where there will be none."""
        texts: dict[Span, str | None] = {}
        for span, address in self._addresses.items():
            text = self._summaries.ready(address)
            if text is not None or self._summaries.has_failed(address):
                texts[span] = text
        return texts

    def outcome(self, plan: Plan, *, waited: bool) -> str:
        """The word for the summary header, for the plan that was made."""
        texts = self.texts()
        if any(texts.get(span) is None for span in self._addresses if waited or span in texts):
            return "failed"
        if waited:
            return "waited"
        return "ready" if plan.anchors else "none"
