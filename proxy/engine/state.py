"""The state of a session, as the memory-state log writes it and the admin API returns it.

Three blocks: the session, the tool results that are fresh, and the messages that the model gets.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proxy.core.dialects.dialect import Content, Dialect
from proxy.core.planning.plan import Epoch
from proxy.core.text.cutting import one_line
from proxy.core.tool_cache.cache import CachedResult

_SHOWN = 200
"""Most characters of a message, or of a call's arguments, in one line."""
_HIDDEN = "…"


class SummaryCounts(NamedTuple):
    """The summaries of a lane."""

    bytes: int
    """UTF-8 bytes of the summaries in the lane's current view."""
    written: int
    """Distinct summaries that a model has written for the lane."""

    @classmethod
    def of(cls, epochs: Sequence[Epoch]) -> "SummaryCounts":
        """Sum up a lane's epochs, of which the newest is last."""
        standing = epochs[-1].plan.anchors if epochs else ()
        written = {anchor.text for epoch in epochs for anchor in epoch.plan.anchors if not anchor.by_code}
        return cls(sum(len(anchor.text.encode(errors="replace")) for anchor in standing), len(written))


class SessionSnapshot(NamedTuple):
    """The state of a session."""

    id: str
    """The session's id in the log."""
    session: str
    """The session's name, which a client may have chosen."""
    exchanges: int
    summarised: SummaryCounts
    functions: Sequence[CachedResult]
    """Tool results that are fresh."""
    messages: Sequence[tuple[str, str]]
    """Role and text of the messages that the model gets."""

    def lines(self, *, with_content: bool) -> str:
        """Return the text for the log; names and what people, models and tools said only ``with_content``."""

        def shown(text: str) -> str:
            return one_line(text, _SHOWN) if with_content else _HIDDEN

        summary, written = self.summarised
        name = one_line(self.session, _SHOWN) if with_content else self.id
        of_session = f"Session: {name} · Exchanges: {self.exchanges}"
        lines = [
            "MEMORY STATE",
            f"  {of_session} · Running summary: {summary} bytes · Model compressions: {written}",
            "FUNCTION CACHE STATE",
            f"  Cached functions: {len(self.functions)}",
        ]
        lines += [
            f"  • {each.tool}({shown(each.arguments)}): {each.remaining}/{each.duration} exchanges remaining"
            for each in self.functions
        ]
        lines += ["AGENT RECEIVES", f"  {len(self.messages)} messages"]
        lines += [
            f"  [{number}] {role.upper()}: {shown(text)}"
            for number, (role, text) in enumerate(self.messages, 1)
        ]
        return "\n".join(lines)


def role_texts(raws: Iterable[bytes], dialect: Dialect) -> list[tuple[str, str]]:
    """Return role and text of each message; a tool call is written as its name and arguments."""

    def spoken_text(content: Content) -> str:
        calls = (f"{name}({arguments})" for _, name, arguments in content.calls)
        return " ".join(filter(None, (content.text, *calls)))

    return [(each.role, spoken_text(each)) for each in map(dialect.read, raws)]
