"""What the admin API answers and takes: the models are the contract, and its OpenAPI document.

Messages are passed on as they are, odd ones too: they are a client's, and nothing here may refuse them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from proxy.core.planning.explain import Row


def time(seconds: float) -> str:
    """A time as the API writes it: UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exact(raw: bytes) -> str:
    """Bytes as a text from which the same bytes can be had."""
    return raw.decode(errors="surrogateescape")


Time = Annotated[
    str,
    BeforeValidator(lambda at: time(at) if isinstance(at, float) else at),
    Field(json_schema_extra={"format": "date-time"}),
]
Exact = Annotated[str, BeforeValidator(lambda raw: exact(raw) if isinstance(raw, bytes) else raw)]
"""A message's own JSON, byte for byte."""
Hash = Annotated[str, BeforeValidator(lambda raw: raw.hex() if isinstance(raw, bytes) else raw)]
Number = Annotated[int, Field(ge=0, lt=10**6, strict=True)]
Budget = Annotated[
    int | None,
    Field(description="Tokens; null where nothing is cut for its tokens, because nobody knows the window."),
]
ContextWindow = Annotated[
    int | None, Field(description="Tokens of the model's context window, as far as it is known.")
]
WindowFrom = Annotated[
    str,
    Field(description="Who says so: `policy`, `refusal`, `truncated`, `upstream`, `prices` or `unknown`."),
]
Ranges = Annotated[str, Field(pattern=r"^\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*$", max_length=200)]


def _numbers(messages: object, read: ValidatorFunctionWrapHandler) -> str | list[int]:
    try:
        return read(messages)
    except ValidationError:  # of each way to write them: what the pattern is tells nobody how to
        wrong = 'must be numbers of messages, such as "17", "17-20", "4,17-20" or [4, 5]'
        raise PydanticCustomError("numbers", wrong) from None


Numbers = Annotated[Ranges | list[Number], WrapValidator(_numbers)]
"""Messages, by their numbers in the transcript."""


class Shape(BaseModel):
    """A JSON object with these members and no others; or made of what has them as attributes."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, from_attributes=True
    )


# --- answers ---


class Cycle(Shape):
    """The newest exchange of a session."""

    user_question: str
    agent_messages: int
    final_answer: str | None


class EpochReport(Shape):
    """One change of what is cut. Counts are of messages of the view."""

    id: str
    number: int
    at: Time
    stage: str
    original_count: int
    original_tokens: int
    final_count: int
    final_tokens: int
    removed_count: int
    """Negative where messages came back."""
    removed_tokens: int
    emergency_mode: bool
    asked: Annotated[Literal["compact", "restore"] | None, BeforeValidator(lambda verb: verb or None)]
    """The verb by which a person asked for it; null where the policy began it."""
    reason: str


class Compacted(EpochReport):
    """What was cut on request."""

    summary: str
    """Of what is cut: `written with the operator's key`, `is being written with the operator's key`,
    `comes with the tenant's next request`, `written before`, `no room`, `failed: ` or `none`, and why."""


class SessionReport(Shape):
    """A session as its latest turn left it."""

    id: str
    """Opaque; it includes the tenant."""
    name: str
    """What a client sends as `X-Unabridged-Session`."""
    began_with: str | None
    """The first words of its first user message; null for a session from before they were kept."""
    stage: str
    tokens: int
    """Of the last view, head included."""
    full_tokens: int
    """Of the last request before anything was cut."""
    budget: Budget
    window: ContextWindow
    window_from: WindowFrom
    model: str
    policy: str
    shadow: bool
    """Whether the last request was forwarded as it came: then its `tokens`, and the view, nobody got."""
    blocked: Literal["compacting", "paused"] | None
    """Why turns wait: all of them for a compaction, appended ones while it is paused."""
    turns: int
    exchanges: int
    prune_count: int
    summary_bytes: int
    llm_compressions: int
    current_cycle: Cycle | None
    epochs: list[EpochReport]
    """Of the lane of the latest turn, oldest first."""
    created: Time
    updated: Time


class LeftOut(Shape):
    """How many sessions that were used as recently are left out, because they cannot be read."""

    unknown_secret: int = 0
    """They are encrypted with an `UNABRIDGED_SECRET` that the server was not given."""
    newer_release: int = 0
    """A newer release of the proxy has written them."""
    damaged: int = 0


class Sessions(Shape):
    """The sessions used last, newest first."""

    sessions: list[SessionReport]
    left_out: LeftOut


class Entry(Shape):
    """A message as it came."""

    number: int | None
    """By which other verbs name it; null for system messages of the head, and for what is off this branch."""
    message: Any
    at: Time
    tokens: int | None
    """Counted, not calibrated; null for system messages of the head."""
    answer: bool
    """Whether the proxy relayed it."""
    complete: bool
    """False for an answer that was cut off."""


class Transcript(Shape):
    """A branch of a session."""

    id: str
    tip: str
    messages: list[Entry]


class View(Shape):
    """What the model gets of a branch."""

    id: str
    tip: str
    epoch: int
    tokens: int
    budget: Budget
    messages: list[Any]


class MissingSummary(Shape):
    """A gap that no summary tells of."""

    gap: int
    """Its index, as units name it."""
    why: str
    """`failed: ` with a reason such as `echo` or `too long`, `no room`, or `not yet`."""


class Explanation(Shape):
    """What became of each unit of a branch, and why."""

    id: str
    policy: str
    policy_by: str
    """What chose it for the latest turn: the request's header, a use rule, or the server's default."""
    stage: str
    usage: float
    tokens: int
    full_tokens: int
    budget: Budget
    window: ContextWindow
    window_from: WindowFrom
    ratio: float
    head_tokens: int
    stages: dict[str, float]
    lacking: int
    """Tokens, about, that must come before the epoch that is due pays, by the latest turn; 0: none waits."""
    injected: int
    """Messages of what was handed in for the session: they stand before the units, and count as head."""
    pins: list[int]
    """Messages that the client has pinned on this branch, by their numbers."""
    epochs: list[EpochReport]
    missing_summaries: list[MissingSummary]
    """As far as the process that answers knows: what another one tried to write it cannot tell."""
    units: list[Row]


class ToolResult(Shape):
    """A tool result that is fresh: the same call would be answered with it, or might be."""

    tool_name: str
    parameters: Any
    """The call's arguments; as text, where they are no JSON."""
    result: str
    result_bytes: int
    remaining_duration: int
    """Exchanges that are left."""
    original_duration: int
    """Exchanges that it has after each use."""
    call_id: str
    cached_at: Time
    """When its result came."""
    hits: int
    """How often it was served, or the same call seen again."""


class ToolResults(Shape):
    """The tool results that are fresh at the end of a branch, by the policy as it is now, oldest first."""

    id: str
    tip: str
    policy: str
    tools: list[ToolResult]


class Pinned(Shape):
    """What is pinned now."""

    id: str
    pins: list[int]
    """The numbers of all messages of the session's branch that are."""


class Deleted(Shape):
    """A session that is no more."""

    id: str
    name: str
    deleted: Literal[True]


class Candidate(Shape):
    """A session that may be meant."""

    id: str
    name: str
    began_with: str


class Fault(Shape):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str
    candidates: list[Candidate] = []
    """Of `ambiguous_session` alone: the sessions that may be meant, the newest 20."""


class ErrorReport(Shape):
    """An error, in the shape of OpenAI's."""

    error: Fault


class Document(BaseModel):
    """An OpenAPI document."""

    model_config = ConfigDict(extra="allow")

    openapi: str


# --- bodies ---


class NoBody(Shape):
    """Nothing."""


class ForkBody(Shape):
    """Which branch becomes a session of its own."""

    tip: str | None = None
    """The end of the branch; the session's own, if absent."""
    at: Number | None = None
    """The last message that is taken along, by its number in the transcript of that tip."""
    name: str | None = None
    """What the fork is named; a new name is made, if absent."""


class CompactBody(Shape):
    """Which messages are cut; all that may be, if there is no body."""

    messages: Numbers | None = None
    """Numbers as in the transcript: `"4-19"`, `"4-19,25"` or `[4, 5]`."""


class PinBody(CompactBody):
    """Which messages are pinned; they must be named."""


class RestoreBody(CompactBody):
    """Which cuts are undone; all, if there is no body."""

    epoch: Number | None = None
    """Instead of messages, the number of an epoch in force: what it cut."""
