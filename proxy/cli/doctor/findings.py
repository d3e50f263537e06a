"""Findings: the result of a check as a sentence, with advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from proxy.cli.terminal import table, words

State = Literal["ok", "warn", "fail"]
_STYLES: Mapping[State, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    """What was checked."""
    state: State
    message: str
    """The result as a sentence, without keys and passwords."""
    advice: str = ""
    """What to do about it; empty if nothing need be done."""
    details: Sequence[Mapping[str, object]] = ()
    """Further details, if there are more than fit into a sentence."""


def ok(check: str, message: str, details: Sequence[Mapping[str, object]] = ()) -> Finding:
    """Return a finding that all is well."""
    return Finding(check, "ok", message, "", details)


def warn(check: str, message: str, advice: str, details: Sequence[Mapping[str, object]] = ()) -> Finding:
    """Return a finding about something that works, but may surprise somebody."""
    return Finding(check, "warn", message, advice, details)


def fail(check: str, message: str, advice: str) -> Finding:
    """Return a finding about something that does not work."""
    return Finding(check, "fail", message, advice)


def shown(findings: Sequence[Finding], most: int = 12) -> Iterator[RenderableType]:
    """Yield the findings for people, at most ``most`` details of each, and the number of failures."""
    rows: list[tuple[object, ...]] = []
    for each in findings:
        rows.append((Text(each.state, style=_STYLES[each.state]), each.check, each.message))
        rows += [("", "", "  ".join(map(words, detail.values()))) for detail in each.details[:most]]
        if len(each.details) > most:
            rows.append(("", "", f"and {len(each.details) - most} more: --json has them all"))
        if each.advice:
            rows.append(("", "", Text(f"→ {each.advice}", style=_STYLES[each.state])))
    made = table(("state", "check", "finding"), rows)
    made.show_header = False
    yield made
    states = [each.state for each in findings]
    checks = "1 check" if len(states) == 1 else f"{len(states)} checks"
    yield f"{checks}: {states.count('fail')} failed, {states.count('warn')} with a warning"


# --- clocks: turns are dated by ours, caches aged, certificates found valid or not ---

_ODD, _WRONG = 30.0, 300.0
"""Seconds that a clock may be off: up to the first, delays and dates without fractions explain it; from the
second on, something is wrong."""
_MINUTE = 60.0


def of_clock(check: str, ahead: float) -> Finding:
    """Return a finding about another clock, so many seconds ``ahead`` of ours (negative: behind)."""
    if abs(ahead) < _ODD:
        return ok(check, f"within {_ODD:.0f} s of ours")
    size = f"{abs(ahead):.0f} s" if abs(ahead) < 2 * _MINUTE else f"{abs(ahead) / _MINUTE:.0f} min"
    stands = f"{size} {'ahead of' if ahead > 0 else 'behind'} ours"
    advice = "have both machines ask a time server (NTP); `timedatectl` says whether this one does"
    return fail(check, stands, advice) if abs(ahead) >= _WRONG else warn(check, stands, advice)


def seconds_of(date: str) -> float | None:
    """Return a `Date` header (RFC 9110 5.6.7) in seconds since 1970; None if it is not valid."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
