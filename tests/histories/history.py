"""What happened: what each client sent and got, what was forwarded, and what was stored.

A history is plain data. The runner records one; the checker reads it, and reads nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Message = dict[str, Any]
Said = tuple[str, str, tuple[tuple[str, str, str], ...], str]
"""The content of a message, however it is written: role, text, tool calls, and the call it is a result of."""

END = " ∎"
"""Ends every answer of the model, so that answers that were cut off can be recognised."""
_ATTEMPT = re.compile(r"\bh\d+\.[a-z]+\d+\.\d+\b")


class Mode(StrEnum):
    """How much of the conversation a client sends."""

    FULL = "full"
    APPEND = "append"


class Outcome(StrEnum):
    """The outcome of an attempt, as its client saw it."""

    ANSWERED = "answered"
    """The whole answer arrived; in append mode it is thereby acknowledged as stored."""
    CUT = "cut"
    """The answer broke off, or ended with an error event."""
    REFUSED = "refused"
    """An error response."""
    LEFT = "left"
    """The client left before the end."""
    BROKEN = "broken"
    """The connection broke before a response."""


@dataclass(slots=True)
class Attempt:
    """One request, from the client's side. Times are seconds of one clock."""

    id: str
    """History, client and number of the request: `h7.c1.3`."""
    talk: str
    """Its conversation, as named by the script; no text of another one may reach it."""
    mode: Mode
    sent: tuple[Message, ...]
    began: float
    worker: int = 0
    fate: str = ""
    """What the upstream does with the request."""
    is_aside: bool = False
    """Whether it is a request of another kind under the conversation's id, such as one for a title."""
    retries: str = ""
    """The attempt that it repeats."""
    twin: str = ""
    """The attempt that was made at the same time with the same body, at another worker."""
    header: str = ""
    """The session's name, if the client sends one."""
    tenant: str = ""
    ended: float = 0.0
    outcome: Outcome = Outcome.BROKEN
    status: int = 0
    code: str = ""
    """The code of the error, in the body or in the stream."""
    answer: Message | None = None
    """The part of the answer that the client got."""
    session: str = ""
    """The session's name in the answer."""
    degraded: tuple[str, ...] = ()
    cut: int | None = None
    """Number of cut messages according to the answer; None if it does not say."""

    @property
    def is_answered(self) -> bool:
        return self.outcome is Outcome.ANSWERED


@dataclass(frozen=True, slots=True)
class Forwarded:
    """One request, from the upstream's side."""

    attempt: str
    messages: tuple[Message, ...]
    body: str
    """The body, without the request for usage that a worker may add."""
    answer: Message | None
    """The upstream's intended answer; None if it refused."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A message of a stored session."""

    hash: bytes
    parent: bytes
    message: Message
    is_answer: bool
    is_complete: bool


@dataclass(frozen=True)
class Tree:
    """A stored session: its messages by chain hash, and the tip of its main line."""

    kept: dict[bytes, Kept]
    tip: bytes
    told: tuple[Message, ...] = ()
    """The transcript in the admin API, without the head."""

    def path(self, last: bytes) -> list[Kept]:
        """Return the messages from the root to one of them."""
        path: list[Kept] = []
        while (node := self.kept.get(last)) is not None:
            path.append(node)
            last = node.parent
        return path[::-1]


@dataclass
class History:
    """Everything that the checker reads."""

    seed: int
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    forwarded: list[Forwarded] = field(default_factory=list[Forwarded])
    trees: dict[tuple[str, str], Tree] = field(default_factory=dict[tuple[str, str], Tree])
    """Stored sessions by tenant and name."""
    faults: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    crashes: list[float] = field(default_factory=list[float])
    """Times when workers were killed: answers that were not written yet are lost without a report."""
    is_calm: bool = True
    """Whether store and workers were undisturbed; then no answer may be degraded."""


# --- reading messages ---


def said(message: Message) -> Said:
    content: Any = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    calls = tuple(
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    )
    return message["role"], text.strip(), calls, message.get("tool_call_id") or ""


def all_said(messages: Iterable[Message]) -> tuple[Said, ...]:
    return tuple(map(said, messages))


def without_head(messages: Sequence[Message]) -> Sequence[Message]:
    """Return a request's messages after its leading system messages."""
    first = next((place for place, each in enumerate(messages) if each["role"] != "system"), len(messages))
    return messages[first:]


def attempts_named(message: Message) -> set[str]:
    """Return the attempts whose words or answers a message contains."""
    return set(_ATTEMPT.findall(json.dumps(message)))


def is_whole(answer: Message) -> bool:
    """Whether an answer of the model is complete."""
    return bool(answer.get("tool_calls")) or said(answer)[1].endswith(END)


# --- telling it to people ---


def log(history: History) -> str:
    """Return the history for people, one line per event, in chronological order."""
    first = min((attempt.began for attempt in history.attempts), default=0.0)
    lines = [(at, f"          {what}") for at, what in history.faults]
    lines += [(at, "          a worker is killed") for at in history.crashes]
    for attempt in history.attempts:
        lines += [(attempt.began, _began(attempt)), (attempt.ended, _ended(attempt))]
    told = [f"{1000 * (at - first):7.0f} ms  {line}" for at, line in sorted(lines)]
    kept = [f"[{name}] holds {_branches(tree)}" for (_, name), tree in history.trees.items()]
    return "\n".join([*told, *kept])


def _branches(tree: Tree) -> str:
    """Return the answers on the tip's branch, and those on other branches."""
    on_tip = tree.path(tree.tip)
    beside = [node for node in tree.kept.values() if node.is_answer and node not in on_tip]
    return f"{_answers(on_tip)}; beside it: {_answers(beside) or 'nothing'}"


def _answers(nodes: Iterable[Kept]) -> str:
    answers = [node for node in nodes if node.is_answer]
    return ", ".join(
        f"{' '.join(sorted(attempts_named(node.message))) or '?'}{'' if node.is_complete else ' (cut off)'}"
        for node in answers
    )


def _began(attempt: Attempt) -> str:
    marks = [
        f"[{attempt.header}]" if attempt.header else "[by chain]",
        f"retry of {attempt.retries}" if attempt.retries else "",
        f"with its twin {attempt.twin}" if attempt.twin else "",
        "aside" if attempt.is_aside else "",
        f"(upstream: {attempt.fate})" if attempt.fate != "answer" else "",
    ]
    shown = " | ".join(shorten(message) for message in attempt.sent[-3:])
    more = f"{len(attempt.sent) - 3} more | " if len(attempt.sent) > 3 else ""
    told = " ".join(mark for mark in marks if mark)
    return f"{attempt.id} → worker {attempt.worker} {attempt.mode} {told}: {more}{shown}"


def _ended(attempt: Attempt) -> str:
    answer = f": {shorten(attempt.answer)}" if attempt.answer else ""
    failed = " ".join(str(each) for each in (attempt.status, attempt.code) if each and each != 200)
    degraded = f" degraded={','.join(attempt.degraded)}" if attempt.degraded else ""
    return f"{attempt.id} ← {attempt.outcome} {failed}{degraded} [{attempt.session}]{answer}"


def shorten(message: Message) -> str:
    role, text, calls, answers = said(message)
    called = " ".join(f"calls {call_id}" for call_id, _, _ in calls)
    return f"{role} {answers} {called} {text[:44]!r}".replace("  ", " ")
