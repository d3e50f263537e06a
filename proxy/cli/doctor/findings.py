"""What a check has found: how it stands, in a sentence, and what to do about it."""

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
    """One line of the doctor's."""

    check: str
    """What was looked at."""
    state: State
    message: str
    """How it stands; never a key or a password."""
    advice: str = ""
    """What to do; empty where nothing is to be done."""
    details: Sequence[Mapping[str, object]] = ()
    """What it is made of, where there is more than fits into a sentence."""


def ok(check: str, message: str, details: Sequence[Mapping[str, object]] = ()) -> Finding:
    """All is well."""
    return Finding(check, "ok", message, "", details)


def warn(check: str, message: str, advice: str, details: Sequence[Mapping[str, object]] = ()) -> Finding:
    """It works, and something will surprise somebody."""
    return Finding(check, "warn", message, advice, details)


def fail(check: str, message: str, advice: str) -> Finding:
    """It does not work."""
    return Finding(check, "fail", message, advice)


def shown(findings: Sequence[Finding], most: int = 12) -> Iterator[RenderableType]:
    """Findings for people, with ``most`` details of each, and how many failed."""
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
    yield f"{len(states)} checks: {states.count('fail')} failed, {states.count('warn')} with a warning"


# --- clocks: turns are dated by ours, caches aged, certificates found valid or not ---

_ODD, _WRONG = 30.0, 300.0
"""Seconds: below the first a network and a date without fractions explain it."""
_MINUTE = 60.0


def of_clock(check: str, ahead: float) -> Finding:
    """What it means that another clock is ``ahead`` of ours, in seconds; behind, where that is negative."""
    if abs(ahead) < _ODD:
        return ok(check, f"within {_ODD:.0f} s of ours")
    size = f"{abs(ahead):.0f} s" if abs(ahead) < 2 * _MINUTE else f"{abs(ahead) / _MINUTE:.0f} min"
    stands = f"{size} {'ahead of' if ahead > 0 else 'behind'} ours"
    advice = "have both machines ask a time server (NTP); `timedatectl` says whether this one does"
    return fail(check, stands, advice) if abs(ahead) >= _WRONG else warn(check, stands, advice)


def seconds_of(date: str) -> float | None:
    """Seconds since 1970 of a `Date` header (RFC 9110 5.6.7); None where it is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
