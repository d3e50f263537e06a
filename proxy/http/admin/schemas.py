"""The request and response bodies of the admin API, from which its OpenAPI document is made.

Clients' messages are returned unchanged, however odd, so they are not validated here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
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
from proxy.engine.admin.inspection import NewestExchange


def time(seconds: float) -> str:
    """Return a time (seconds since 1970) as the API writes it: UTC, in milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exact(raw: bytes) -> str:
    """Return bytes as a text that can be converted back to the same bytes."""
    return raw.decode(errors="surrogateescape")


Time = Annotated[
    str,
    BeforeValidator(lambda at: time(at) if isinstance(at, float) else at),
    Field(json_schema_extra={"format": "date-time"}),
]
Exact = Annotated[str, BeforeValidator(lambda raw: exact(raw) if isinstance(raw, bytes) else raw)]
"""The JSON of a message, byte for byte."""
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
RangesText = Annotated[str, Field(pattern=r"^\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*$", max_length=200)]


OUT_OF_RANGE = frozenset({"greater_than_equal", "less_than"})
"""How pydantic calls the faults of numbers that the limits of a member exclude."""


def _numbers(messages: object, read: ValidatorFunctionWrapHandler) -> str | list[int]:
    try:
        return read(messages)
    except ValidationError as error:  # else one error for each form, and one quotes the pattern
        faults = {each["type"] for each in error.errors()} - {"string_type"}  # a list is no string
        if faults <= OUT_OF_RANGE:
            raise PydanticCustomError("less_than", "has a number that no message can have") from None
        wrong = 'must be numbers of messages, such as "17", "17-20", "4,17-20" or [4, 5]'
        raise PydanticCustomError("numbers", wrong) from None


Numbers = Annotated[RangesText | list[Number], WrapValidator(_numbers)]
"""Numbers of messages in the transcript, as a list or as ranges."""


class Shape(BaseModel):
    """A JSON object without unknown members; can also be made from an object's attributes."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, from_attributes=True
    )

    @classmethod
    def from_object(cls, source: object, **members: object) -> Self:
        """Make one from ``members``, and from the attributes of an object for all others that it has."""
        others = (name for name in cls.model_fields if name not in members and hasattr(source, name))
        return cls.model_validate({**{name: getattr(source, name) for name in others}, **members})


# --- answers ---


class EpochReport(Shape):
    """An epoch: one change of what is cut. Counts are of messages of the view."""

    id: str
    number: int
    at: Time
    stage: str
    original_count: int
    original_tokens: int
    final_count: int
    final_tokens: int
    removed_count: int
    """Negative if messages were restored."""
    removed_tokens: int
    emergency_mode: bool
    asked: Annotated[Literal["compact", "restore"] | None, BeforeValidator(lambda verb: verb or None)]
    """The verb by which a person requested the epoch; null if the policy began it."""
    reason: str


class Compacted(EpochReport):
    """The epoch that a person requested."""

    summary: str
    """The state of the summary of what was cut: `written with the operator's key`,
    `is being written with the operator's key`, `comes with the tenant's next request`,
    `written before`, `no room`, `failed: ` or `none`, and why."""


class SessionReport(Shape):
    """A session as its latest turn left it."""

    id: str
    """Opaque; it includes the tenant."""
    name: str
    """The name that a client sends as `X-Unabridged-Session`."""
    began_with: str | None
    """The first words of its first user message; null if the session is older than this field."""
    stage: str
    tokens: int
    """Tokens of the last view, including the head."""
    full_tokens: int
    """Tokens of the last request before anything was cut."""
    budget: Budget
    window: ContextWindow
    window_from: WindowFrom
    model: str
    policy: str
    shadow: bool
    """Whether the last request was forwarded unchanged; then the view, with its `tokens`, was not sent."""
    blocked: Literal["compacting", "paused"] | None
    """Why turns wait: all turns during a compaction, or appended turns while the session is paused."""
    turns: int
    exchanges: int
    prune_count: int
    summary_bytes: int
    llm_compressions: int
    current_cycle: NewestExchange | None
    epochs: list[EpochReport]
    """The epochs of the lane of the latest turn, oldest first."""
    created: Time
    updated: Time


class LeftOut(Shape):
    """How many equally recent sessions are left out because they cannot be read, by the reason."""

    unknown_secret: int = 0
    """Encrypted with an `UNABRIDGED_SECRET` that the server does not have."""
    newer_release: int = 0
    """Written by a newer release of the proxy."""
    damaged: int = 0


class Sessions(Shape):
    """The sessions used last, newest first."""

    sessions: list[SessionReport]
    left_out: LeftOut


class Entry(Shape):
    """A message as it arrived."""

    number: int | None
    """The message's number, as used by verbs; null for the head, and for messages off this branch."""
    message: Any
    at: Time
    tokens: int | None
    """Counted tokens (not calibrated); null for system messages of the head."""
    answer: bool
    """Whether it is an answer that the proxy relayed."""
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
    """A gap without a summary."""

    gap: int
    """The index of the gap, as in the member `gap` of units."""
    why: str
    """`failed: ` with a reason such as `echo` or `too long`, `no room`, or `not yet`."""


class Explanation(Shape):
    """What happened to each unit of a branch, and why."""

    id: str
    policy: str
    policy_by: str
    """How the policy of the latest turn was chosen: by the header, a use rule, or the server's default."""
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
    """Approximate tokens that must be added until the waiting epoch pays; 0 if none waits."""
    injected: int
    """Number of injected messages, which come before the units and count as part of the head."""
    pins: list[int]
    """Numbers of the messages on this branch that the client has pinned."""
    epochs: list[EpochReport]
    missing_summaries: list[MissingSummary]
    """Gaps without a summary, as far as the answering worker knows; others' attempts are unknown to it."""
    units: list[Row]


class ToolResult(Shape):
    """A fresh tool result, with which the proxy may answer the same call."""

    tool_name: str
    parameters: Any
    """The arguments of the call; as text if they are not JSON."""
    result: str
    result_bytes: int
    remaining_duration: int
    """Number of exchanges for which it is still fresh."""
    original_duration: int
    """Number of exchanges for which it is fresh after each use."""
    call_id: str
    cached_at: Time
    """When the result arrived."""
    hits: int
    """How often it was served, or the same call was made again."""


class ToolResults(Shape):
    """The tool results that are fresh at the end of a branch, by the policy as it is now, oldest first."""

    id: str
    tip: str
    policy: str
    tools: list[ToolResult]


class CachedFunction(Shape):
    """A tool call whose result is fresh."""

    name: str = Field(validation_alias=AliasChoices("name", "tool"))
    arguments: str
    remaining_exchanges: int = Field(validation_alias=AliasChoices("remaining_exchanges", "remaining"))
    cache_exchanges: int = Field(validation_alias=AliasChoices("cache_exchanges", "duration"))
    """Number of exchanges for which it is fresh after each use."""


class Received(Shape):
    """A message that the model gets."""

    role: str
    text: str
    """The text, followed by the calls that the message makes."""


class StateReport(Shape):
    """The state of a session, as the log has it for each request at debug level."""

    session: str
    """The name of the session."""
    exchanges: int
    summary_bytes: int
    """Bytes of the summaries in the view."""
    llm_compressions: int
    functions: list[CachedFunction]
    messages: list[Received]
    lines: str
    """The same as text, in the form of the log."""


class Pinned(Shape):
    """The pinned messages of a session."""

    id: str
    pins: list[int]
    """The numbers of all pinned messages on the session's branch."""


class Deleted(Shape):
    """A session that was deleted."""

    id: str
    name: str
    deleted: Literal[True]


class Candidate(Shape):
    """One of several sessions that match a name."""

    id: str
    name: str
    began_with: str


class Fault(Shape):
    """An error."""

    message: str
    type: str
    param: str | None
    code: str
    candidates: list[Candidate] = []
    """Only for `ambiguous_session`: the sessions that match, the newest 20."""


class ErrorReport(Shape):
    """An error, in the form of OpenAI's errors."""

    error: Fault


class Document(BaseModel):
    """An OpenAPI document."""

    model_config = ConfigDict(extra="allow")

    openapi: str


# --- bodies ---


class NoBody(Shape):
    """An empty object."""


class ForkBody(Shape):
    """The branch that is copied into a session of its own."""

    tip: str | None = None
    """The last message of the branch; by default the session's tip."""
    at: Number | None = None
    """The number of the last message that is copied; by default the last one of the branch."""
    name: str | None = None
    """The name of the fork; by default a new one is made."""


class CompactBody(Shape):
    """The messages to cut; without a body, all that may be cut."""

    messages: Numbers | None = None
    """Numbers of messages in the transcript: `"4-19"`, `"4-19,25"` or `[4, 5]`."""


class PinBody(CompactBody):
    """The messages to pin; they are required."""


class RestoreBody(CompactBody):
    """The cuts to undo; without a body, all of them."""

    epoch: Number | None = None
    """The number of an epoch in force, whose cuts are undone; an alternative to messages."""
