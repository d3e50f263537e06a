"""Derive the fresh tool results at the end of a chain from its messages: docs/policies.md tells the rules.

This is a pure function: the cache at a message depends only on that message and those before it. It keeps law
6 (isolated), because no other branch can write to the cache, and serves law 8, because only new messages need
be read if the result for a prefix is remembered.

A result belongs to the nearest call before it with its id. Ambiguous calls (an id that one message has twice,
a read beside the write that affects it) store nothing. For the cache an exchange ends at the first
answer without tool calls after a user message or, given up without one, at the next user message.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, cast

from proxy.core.conversation.extension import InjectedResult
from proxy.core.conversation.messages import Message
from proxy.core.dialects.dialect import Call, Content, Dialect
from proxy.core.formats.json import loads
from proxy.core.text.lexicon.patterns import Wording
from proxy.core.text.lexicon.words import FAILURES, FOREIGN_FAILURES, UNSPACED_FAILURES
from proxy.core.tool_cache.cache import RESULT_BYTES, CachedResult, Entries, ToolCache, ToolRules, key_of

STORED, ERROR, UNFIT, INVALIDATED, EXPIRED = "stored", "error", "unfit", "invalidated", "expired"
"""What happened to a result; ``UNFIT``: it is too large, not all text, or its tool is not cached."""
_MOST_OPEN = 256
"""Maximal number of calls whose results are awaited."""

ChainMessage = tuple[Message, bytes, bytes]
"""A message, its bytes, and the chain hash after it."""
Hidden = Mapping[bytes, Sequence[bytes]]
"""By chain hash of an answer, the messages sent upstream in its place: calls the proxy answered itself."""
NO_HIDDEN: Hidden = {}


class _Call(NamedTuple):
    tool: str
    arguments: str


@dataclass(frozen=True)
class Derived:
    """The state after some messages."""

    cache: ToolCache = field(default_factory=ToolCache)
    open: Mapping[str, _Call] = field(default_factory=dict[str, _Call])
    """By id, calls whose results are still to come and will be cached."""
    is_asked: bool = False
    is_tried: bool = False
    """Whether the user's message was followed by tool calls or results."""


def initial(rules: ToolRules, injected: Sequence[InjectedResult] = ()) -> Derived:
    """Return the state before the first message, with results that the caller provided."""
    entries = Entries(ToolCache(rules))
    for given in injected:
        duration = rules.duration(given.name) if given.cache_exchanges is None else given.cache_exchanges
        _keep(entries, _Call(given.name, given.arguments), given.result, duration, given.call_id, b"")
    return Derived(entries.frozen())


def derive(
    onto: Derived,
    places: Iterable[ChainMessage],
    dialect: Dialect,
    hidden: Hidden = NO_HIDDEN,
    events: Counter[str] | None = None,
) -> Derived:
    """Return the state after more messages; ``events`` counts what happened to results (see ``STORED``)."""
    derivation = _Derivation(onto, dialect, Counter() if events is None else events)
    for message, raw, place in places:
        sequence = hidden.get(place)
        if sequence:
            derivation.read_hidden([dialect.read(each) for each in sequence])
        else:
            derivation.read(message, raw, place)
    return derivation.frozen()


class _Derivation:
    def __init__(self, onto: Derived, dialect: Dialect, events: Counter[str]) -> None:
        self._dialect = dialect
        self._rules = onto.cache.rules
        self._entries = Entries(onto.cache)
        self._open = dict(onto.open)
        self._is_asked, self._is_tried = onto.is_asked, onto.is_tried
        self._events = events

    def frozen(self) -> Derived:
        return Derived(self._entries.frozen(), self._open, self._is_asked, self._is_tried)

    def read(self, message: Message, raw: bytes, place: bytes) -> None:
        if message.is_result:
            self._answered(message, raw, place)
        elif message.role == "user":
            if self._is_tried:
                self._end()
            self._is_asked = True
        elif message.calls:
            self._called(list(self._dialect.read(raw).calls))
        elif message.role == "assistant":
            self._end()

    def read_hidden(self, sequence: Sequence[Content]) -> None:
        """Read the messages behind one answer, some of whose calls the proxy answered itself."""
        for place, content in enumerate(sequence):
            calls = list(content.calls)
            # Only results directly after this message count, because another message may reuse the ids.
            results = takewhile(lambda each: each.result_of, sequence[place + 1 :]) if calls else ()
            answered = Counter(call_id for result in results for call_id in result.result_of)
            times = Counter(call_id for call_id, _, _ in calls)
            answered_here = [call for call in calls if answered[call[0]] == times[call[0]]]
            for _, tool, arguments in answered_here:
                self._is_tried = True
                self._entries.use(key_of(tool, arguments))
            if calls:
                self._called([call for call in calls if call not in answered_here])
            elif content.role == "assistant":
                self._end()

    def _end(self) -> None:
        if self._is_asked:
            self._events[EXPIRED] += self._entries.end_exchange()
        self._is_asked = self._is_tried = False

    def _called(self, calls: Sequence[Call]) -> None:
        """Read the calls of one message that the client makes."""
        self._is_tried = self._is_tried or self._is_asked
        stale = [
            rule for tool in {tool for _, tool, _ in calls} for rule in self._rules.rules_invalidated_by(tool)
        ]
        self._events[INVALIDATED] += self._entries.invalidate(stale)
        if stale:
            self._open = {
                key: call for key, call in self._open.items() if self._rules.of(call.tool) not in stale
            }
        times = Counter(call_id for call_id, _, _ in calls)
        for call_id, tool, arguments in calls:
            self._open.pop(call_id, None)
            is_sure = times[call_id] == 1 and self._rules.of(tool) not in stale
            if is_sure and self._rules.duration(tool):
                self._open[call_id] = _Call(tool, arguments)
            elif not is_sure:
                self._entries.drop(key_of(tool, arguments))
        while len(self._open) > _MOST_OPEN:
            del self._open[next(iter(self._open))]

    def _answered(self, message: Message, raw: bytes, place: bytes) -> None:
        self._is_tried = self._is_tried or self._is_asked
        if self._open.keys().isdisjoint(message.result_of):
            return
        for piece in self._dialect.read(raw).pieces():
            for call_id in piece.result_of:
                call = self._open.pop(call_id, None)
                if call is not None:
                    duration = self._rules.duration(call.tool)
                    became = _keep(self._entries, call, text_of(piece), duration, call_id, place)
                    self._events[became] += 1


def text_of(result: Content) -> str | None:
    """Return the text of a result; None if a part of it is not text."""
    parts = list(result.parts)
    is_text = bool(parts) and all(isinstance(part.get("text"), str) for part in parts)
    return result.text if is_text else None


def _keep(entries: Entries, call: _Call, text: str | None, duration: int, call_id: str, place: bytes) -> str:
    """Store a result, or drop an older one of the same call; return what happened to it."""
    key = key_of(call.tool, call.arguments)
    entry = CachedResult(key, *call, text or "", call_id, place, duration, remaining=duration)
    is_kept = text is not None and duration > 0 and entry.size <= RESULT_BYTES
    if is_kept and not is_error(entry.text):
        entries.put(entry)
        return STORED
    entries.drop(key)
    return ERROR if is_kept else UNFIT


# --- whether a result says that the call failed ---
# Errors are never cached. No protocol marks them, so this looks for what tools really write. False positives
# are preferred: a result mistaken for an error costs one call; an error mistaken for a result would be served
# for several exchanges.


_SAYS = Wording(FAILURES)
_BEGINS = re.compile(
    r"[\W_]*(?:(?:an )?(?:\w+ )?error\b|exception\b|(?-i:\w+(?:Error|Exception)\b)|traceback|fatal\b"
    r"|panic\b|failed|failure\b|abort|unable to|no such"
    r"|could ?n[o']t|can ?not|can't|invalid\b|illegal\b|not (?:found|allowed|permitted|authori[sz]ed)"
    r"|(?:permission|access) denied|denied\b|unauthori[sz]ed|forbidden|refused|time(?:d )?out|rate limit"
    r"|too many requests|(?:internal )?server error|bad (?:gateway|request)|(?:temporarily )?unavailable"
    rf"|{FOREIGN_FAILURES}|no se pudo|impossible de|{UNSPACED_FAILURES}"
    r"|(?:HTTP(?:/[\d.]+)?|status(?: code)?)[ :=]*[45]\d\d\b"
    r"|[45]\d\d (?:not|bad|unauth|forbidden|internal|service|too|request|gateway|gone|conflict|method))",
    re.IGNORECASE,
)
_HOLDS = re.compile(
    r"(?-i:\w(?:Error|Exception)\b)|timed? ?out\b|(?:permission|access) denied|not found\b|no such file"
    r"|connection (?:refused|reset|closed)|rate limit|too many requests|cannot access|unavailable\b"
    r"|HTTP(?:/[\d.]+)?[ :=]*[45]\d\d\b|\bstatus(?: code)?[ :=]*[45]\d\d\b"
    r"|\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]*-?[1-9]|segmentation fault",
    re.IGNORECASE,
)
_LINE = 200
"""Characters of a text's first and last lines that are searched."""
_TRACE = "Traceback (most recent call last)"
_ELEMENTS = 20
_BAD = 400
_FAULTS = ("error", "errors", "exception", "traceback", "error_message", "errormessage", "error_code")
"""Members, in lower case, that are present and not empty if something went wrong."""
_FLAGS = ("is_error", "iserror", "failed", "timed_out")
_SUCCESSES = ("success", "ok", "succeeded", "is_success")
_CODES = ("status", "status_code", "statuscode", "http_status", "httpstatus")
_EXITS = ("exit_code", "exitcode", "returncode", "return_code", "exit_status")
_STATES = ("status", "type", "state", "result")
_BAD_STATES = frozenset(
    {"error", "failed", "failure", "fail", "timeout", "denied", "forbidden", "not_found", "exception"}
)


def speaks_of_error(text: str) -> bool:
    """Whether a text contains a word for failure, in any of six languages."""
    return _SAYS.search(text) is not None


def is_error(text: str) -> bool:
    """Whether a result is, or may be, an error."""
    if text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "[", '"'):
        return _is_bad_text(text)
    try:
        value: object = loads(text)
    except ValueError:
        return _is_bad_text(text)
    if isinstance(value, str):
        return _is_bad_text(value)
    objects = _objects(value)
    objects += [inner for members in objects for each in members.values() for inner in _objects(each)]
    return any(
        any(members.get(name) for name in _FAULTS)
        or any(members.get(name) is True for name in _FLAGS)
        or any(members.get(name) is False or members.get(name) == "false" for name in _SUCCESSES)
        or any(_number(members.get(name)) >= _BAD for name in _CODES)
        or any(_number(members.get(name)) != 0 for name in _EXITS)
        or any(
            isinstance(state := members.get(name), str) and state.lower() in _BAD_STATES for name in _STATES
        )
        or any(isinstance(member, str) and _BEGINS.match(member[:_LINE]) for member in members.values())
        for members in objects
    )


def _objects(value: object) -> list[Mapping[str, object]]:
    """Return an object, or those in an array, with the names of their members in lower case."""
    listed = cast("list[object]", value)[:_ELEMENTS] if isinstance(value, list) else [value]
    objects = [cast("Mapping[str, object]", each) for each in listed if isinstance(each, dict)]
    return [{name.lower(): member for name, member in each.items()} for each in objects]


def _number(value: object) -> float:
    """Return a number or a number written as text; 0 for anything else."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        return int(value[:9])
    return value if isinstance(value, (int, float)) else 0


def _is_bad_text(text: str) -> bool:
    lines = text.strip()
    first, last = lines[:_LINE].partition("\n")[0], lines[-_LINE:].rpartition("\n")[2]
    return (
        _BEGINS.match(first) is not None
        or any(speaks_of_error(line) or _HOLDS.search(line) for line in {first, last})
        or _TRACE in text
    )
