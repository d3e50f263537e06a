"""Templates, and how numbers and times are written in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from proxy.core.economics.bill import NANO

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


class Renderer:
    """Renders templates; whatever stands in them is escaped. ``now`` tells seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._templates = Environment(
            loader=PackageLoader("proxy.http.page"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "number": number,
            "percent": percent,
            "dollars": dollars,
            "ago": self._ago,
            "day": day,
            "iso": iso,
        }

    def __call__(self, template: str, content: Mapping[str, object]) -> str:
        """The text of a template with this content."""
        return self._templates.get_template(template).render(content)

    def _ago(self, seconds: float) -> str:
        """How long ago a time is, in words."""
        passed = self._now() - seconds
        for length, word in _UNITS:
            if passed >= length:
                count = int(passed / length)
                return f"{count} {word}{'s' if count > 1 else ''} ago"
        return "just now"


def number(value: float | None) -> str:
    """A number with its thousands apart; a dash for none."""
    return "—" if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """A share in whole percent; a dash for none."""
    return "—" if share is None else f"{share:.0%}"


def dollars(nano: int) -> str:
    """Nano-dollars as dollars: in cents, small ones in hundredths of a cent."""
    value = nano / NANO
    places = 2 if abs(value) >= 1 else 4
    return f"{'-' if value < 0 else ''}${abs(value):,.{places}f}"


def day(seconds: float) -> str:
    """A time in UTC for people, to the minute."""
    return _time(seconds).strftime("%Y-%m-%d %H:%M")


def iso(seconds: float) -> str:
    """A time in UTC for programs, to the second."""
    return _time(seconds).isoformat(timespec="seconds")


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
