"""Notices of degraded states: what is wrong, in plain words, and what to do about it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.core.economics.bill import NOTHING, Bill
from proxy.engine.admin.inspection import Inspected, Inspection
from proxy.engine.admin.stats import Stats
from proxy.errors import StoreUnavailable

_LOOKED_AT = 50
"""Sessions, those used last, that are looked at."""
_NAMED = 5
"""Most models that a notice names."""
_LEFT_OUT: Mapping[str, str] = {
    "unknown_secret": (
        "are encrypted with another UNABRIDGED_SECRET: start the server with both, the new one first"
    ),
    "newer_release": "were written by a newer release of the proxy: upgrade this one",
    "damaged": "are damaged: see the log, and restore the store from a backup if they are needed",
}


@dataclass(frozen=True)
class Notice:
    """Something that is degraded now."""

    what: str
    advice: str
    """What to do about it."""


@dataclass(frozen=True)
class Notices:
    """Finds what is degraded now."""

    inspection: Inspection
    stats: Stats
    stale_policies: Callable[[], Sequence[str]]
    """Policies whose files cannot be used now."""
    settings_fault: Callable[[], str]
    """Why the settings file cannot be used now; empty if it can."""

    async def now(self) -> list[Notice]:
        """Look at the newest sessions and at today's bill, and return all notices."""
        found, left_out, today, fault = list[Inspected](), Counter[str](), NOTHING, ""
        try:
            found, left_out = await self.inspection.newest(_LOOKED_AT)
            today = await self.stats.today()
        except StoreUnavailable as error:
            fault = error.message
        return [*self.of(found, left_out, today, fault or await self.refusal())]

    async def refusal(self) -> str:
        """Return why the store takes no writes; empty if it does."""
        try:
            await self.inspection.store.ping()
        except StoreUnavailable as error:
            return error.message
        return ""

    def of(
        self, found: Sequence[Inspected], left_out: Mapping[str, int], today: Bill, fault: str
    ) -> Iterator[Notice]:
        """Yield all notices, where somebody has looked already; ``fault`` is the store's, if it has one."""
        if fault:
            yield Notice(
                fault,
                "Chats go on without their sessions, unless a policy says otherwise, and are stored when it"
                " is back. Check that the store runs, can be reached from here, and takes writes.",
            )
        for reason, count in left_out.items():
            if count:
                yield Notice(f"{count} of the newest sessions cannot be read.", f"They {_LEFT_OUT[reason]}.")
        if stale := self.stale_policies():
            yield Notice(
                f"These policy files cannot be used as they are now: {', '.join(stale)}.",
                "Their last valid version is in force. `unabridged check` names the line that is wrong.",
            )
        if fault := self.settings_fault():
            yield Notice(
                f"The settings file cannot be used as it is now. {fault}",
                "Its last valid version is in force. A server would not start with it.",
            )
        sessions = [each.session for each in found]
        models = {each.model for each in sessions if not each.budget and not each.window}
        unknown = [model or "requests without a model" for model in sorted(models)]
        if unknown:
            yield Notice(
                f"Unknown context window: {', '.join(unknown[:_NAMED])}.",
                "Nothing is cut for its length until the upstream refuses a request. To cut earlier, state"
                " the window under [budget.windows] in the policy.",
            )
        if today.failed:
            failures = [f"{count} {why.replace('_', ' ')}" for why, count in sorted(today.failed.items())]
            yield Notice(
                f"Summaries failed today: {', '.join(failures)}.",
                "Short notices stand in their place, and exact facts are kept without them. The log"
                " says why each failed. Check the model that writes them: the conversation's own, or"
                " `summary.model` of the policy.",
            )
