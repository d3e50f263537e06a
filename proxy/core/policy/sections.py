"""The tables of a policy file, each with its keys, their defaults and the rules between them.

The classes mirror the policy file key by key, and their defaults are the preset `default`. Durations are in
seconds, sizes in bytes and shares are fractions of one, in whatever unit the file states them.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator, model_validator
from pydantic_core import PydanticCustomError

from proxy.core.policy.values import (
    COMPACTORS,
    SEARCHES,
    STRATEGIES,
    Auto,
    Bytes,
    Count,
    Glob,
    NameIn,
    Positive,
    PositiveBytes,
    PositiveSeconds,
    Regex,
    Seconds,
    Share,
    TimeOfDay,
)
from proxy.core.text.lexicon.words import KEYWORDS, SUCCESSES


class Section(BaseModel):
    """A table of the policy file. Unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,  # editors show them, from the JSON schema
    )


def _conflict(message: str, *keys: str) -> PydanticCustomError:
    """Return an error about keys that contradict each other; `keys` (dotted, in the section) locate it."""
    return PydanticCustomError("conflict", "{message}", {"message": message, "keys": keys})


class Budget(Section):
    """How large a forwarded request may be; `auto` means as large as the model's window allows."""

    tokens: Positive | Auto = "auto"
    """Largest forwarded request in tokens; `auto`, and at most: what the model's window allows."""
    reserve: Count | Auto = "auto"
    """Tokens kept free for the answer; `auto`: the request's own limit, else an eighth of the window."""
    bytes: Bytes = 0
    """Largest forwarded body in bytes, in addition to the limit in tokens; 0 means no limit."""
    overflow: Literal["forward", "error"] = "forward"
    """What happens to a request that is still too large: it is forwarded, or refused with an error."""
    windows: Mapping[Glob, Positive] = {}
    """Context windows in tokens by model name, else by shell pattern; the first pattern that matches wins."""

    @property
    def limit(self) -> int | None:
        """The tokens of the budget that the policy states; None if the window decides."""
        return None if self.tokens == "auto" else self.tokens

    @property
    def reserved(self) -> int | None:
        """The tokens to keep free for the answer that the policy states; None if request or window decide."""
        return None if self.reserve == "auto" else self.reserve

    def window(self, model: str) -> int | None:
        """Return the window in tokens that this policy states for `model`; None if it states none."""
        matching = (tokens for match, tokens in self.windows.items() if fnmatchcase(model, match))
        return self.windows.get(model) or next(matching, None)


class Stages(Section):
    """The usage, as a share of the budget, at which each stage begins."""

    warn: Share = 0.60
    """From here on a header, the log and a metric say how full the request is."""
    trim: Share = 0.80
    """From here on the least important messages are cut, without waiting for a summary."""
    compact: Share = 0.90
    """From here on they are cut, and the request waits for a summary."""
    emergency: Share = 1.00
    """Above this they are cut without waiting, and what is still too large is clipped."""
    target: Share = 0.50
    """The goal of an epoch, as a share of what the budget leaves after the head."""
    max_units: Count = 0
    """Number of new units that may be cut, at which an epoch begins whatever the usage; 0 means never."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for low, high, strictly in (
            ("warn", "trim", False),
            ("trim", "compact", True),
            ("compact", "emergency", False),
            ("target", "trim", True),
        ):
            below, above = float(getattr(self, low)), float(getattr(self, high))
            if below > above or (strictly and below == above):
                relation = "must be below" if strictly else "must not be above"
                raise _conflict(f"`{low}` ({below:g}) {relation} `{high}` ({above:g})", low, high)
        return self


ROLES: Mapping[str, float] = {"user": 1.0, "assistant": 0.5, "tool": 0.5, "system": 0.3, "developer": 0.3}


class Importance(Section):
    """The numbers from which a message's importance is computed."""

    recency: Share = 0.3
    """Weight of how new a message is."""
    role: Share = 0.3
    """Weight of its role."""
    content: Share = 0.4
    """Weight of what its text contains."""
    low: Share = 0.5
    """One or two messages between two gaps are cut with them if their importance is below this."""
    keywords: tuple[str, ...] = KEYWORDS
    """Words that make a text important, wherever they stand in it and whatever their case."""
    markers: tuple[str, ...] = ("[SYSTEM:", "[User", "[TASK")
    """Marks in a text that make it important, in this case only."""
    approvals: tuple[str, ...] = ("approval", "duck_call")
    """Words that count in addition to the keywords, whatever their case."""
    success: Share = 0.0
    """Weight of words that report a success, in addition to keywords; 0 makes them ordinary keywords."""
    tool_marker: str = "[Tool:"
    """A text that contains this counts as the result of a tool."""
    short_length: Count = 20
    """A message of fewer characters than this counts as short."""
    short_penalty: Share = 0.7
    """Factor by which the score of a short message's content is multiplied."""
    roles: Mapping[str, Share] = ROLES
    """Score of each role, between 0 and 1."""

    @field_validator("roles")
    @classmethod
    def _fill_in_roles(cls, roles: Mapping[str, float]) -> Mapping[str, float]:
        return {**ROLES, **roles}

    @cached_property
    def counted_keywords(self) -> tuple[str, ...]:
        """The keywords, without the words for a success if these have a weight of their own."""
        successes = {each.lower() for each in SUCCESSES} if self.success else set[str]()
        return tuple(each for each in self.keywords if each.lower() not in successes)


_THIRD, _FIFTH = 1 / 3, 1 / 5


class Keep(Section):
    """What is not cut as long as the rest of the budget suffices."""

    recent: Share = 0.25
    """Share of the budget up to which the newest units are not cut."""
    first_user: StrictBool | Share = True
    """Whether the first user message is kept, or the share of the room it may fill; `true` is a third."""
    pins: tuple[Regex, ...] = ()
    """Messages are kept if any of these regular expressions is found in their text."""

    @property
    def first_user_share(self) -> float:
        """The share of the room above which the first user message is clipped; 0 if it is not kept."""
        return _THIRD if self.first_user is True else float(self.first_user)

    @property
    def first_user_clipped(self) -> float:
        """The share to which it is clipped then: so much that a cut can still meet its target."""
        return _FIFTH if self.first_user is True else float(self.first_user)


class Summary(Section):
    """How cut messages are summarised."""

    enabled: StrictBool = True
    """Whether a model writes summaries; without them notices say how many messages were cut."""
    model: str = ""
    """The model that writes summaries; empty means the model of the conversation."""
    min_gap: Positive = 5
    """Number of messages from which on a gap gets a summary; a smaller one gets a notice."""
    max_tokens: Positive | Auto = "auto"
    """Largest summary in tokens; `auto` derives it from the budget."""
    max_characters: Count = 0
    """Largest summary in characters, in addition to the limit in tokens; 0 means no limit."""
    temperature: Annotated[float, Field(strict=True, ge=0, le=2)] = 0.3
    """Temperature at which the model writes, from 0 to 2."""
    wait: Seconds = 2.5
    """Longest time that a request may wait for its summary."""
    timeout: Seconds = 30.0
    """Longest time that one call to the model may take."""
    role: Literal["user", "system", "developer"] = "user"
    """The role of the message that is a note."""
    alternate: StrictBool | Auto = "auto"
    """Whether the model requires alternating roles; `auto` learns that from a refusal."""
    prompt: str = ""
    """Instruction to the model that writes summaries; empty means the built-in one."""
    cached_prefix: StrictBool = True
    """Whether a summary may be requested by continuing the last request, which the provider has cached."""
    shadow: StrictBool = False
    """Whether summaries are also written in shadow, where only operators see them."""


_LEAST_LEDGER = 2000


class Ledger(Section):
    """The ledger: facts from cut messages that notes carry on, word for word."""

    share: Share = 0.10
    """Largest ledger, as a share of the budget; 0 means none."""
    least: Count | Auto = "auto"
    """Tokens that the ledger may have under any budget; `auto`: 2,000, or 0 if `share` is set."""
    constraints: StrictBool = True
    """Whether it carries on sentences in which users and later system messages lay something down."""
    identifiers: StrictBool = True
    """Whether it carries on ids, paths, names, amounts, dates and the like."""

    @property
    def tokens(self) -> int:
        """`least` in tokens; for `auto` it is 0 if the policy sets a share, which is then the limit."""
        if self.least == "auto":
            return _LEAST_LEDGER if self.share == Ledger.model_fields["share"].default else 0
        return self.least

    @property
    def is_written(self) -> bool:
        """Whether notes have a ledger at all."""
        return (self.constraints or self.identifiers) and bool(self.share or self.tokens)


class Strategy(Section):
    """The strategy that chooses what is cut, and the options of single strategies."""

    name: Annotated[str, NameIn(STRATEGIES)] = "importance"
    """The name of the strategy, built in or installed."""
    last: Positive = 20
    """For `sliding_window`: number of newest messages that stay."""
    exchanges: Positive = 10
    """For `exchanges`: the older exchanges are rolled into a note once there are more than this."""
    roll_to: Positive = 5
    """For `exchanges`: number of newest exchanges that stay then."""
    answer_max: Bytes = 750
    """For `exchanges`: an answer of more bytes is condensed."""
    answer_to: Bytes = 500
    """For `exchanges`: bytes to which it is condensed."""
    condense_active: StrictBool = False
    """Whether long answers in the remaining exchanges are condensed too, when others are cut."""
    summary_max: Bytes = 4000
    """For `exchanges`: a running summary of more bytes is rewritten."""
    summary_to: Bytes = 3000
    """For `exchanges`: bytes in which it is rewritten."""
    idle: Seconds = 1800.0
    """For `session`: a longer pause since the last answer begins something new."""

    @model_validator(mode="after")
    def _shrinks(self) -> Self:
        if self.roll_to > self.exchanges:
            said = f"`roll_to` ({self.roll_to}) must not be above `exchanges` ({self.exchanges})"
            raise _conflict(said, "roll_to", "exchanges")
        for goal, limit in (("answer_to", "answer_max"), ("summary_to", "summary_max")):
            small, large = int(getattr(self, goal)), int(getattr(self, limit))
            if small >= large:
                raise _conflict(f"`{goal}` ({small}) must be below `{limit}` ({large})", goal, limit)
        return self


class Economy(Section):
    """Whether cutting waits until it saves money; `auto` takes the numbers from the price list."""

    enabled: StrictBool = True
    """Whether *trim* waits while an epoch costs more than it saves, and requests get a prompt cache key."""
    cache_ttl: Seconds | Auto = "auto"
    """Time after which an unused prompt is no longer in the provider's cache."""
    cached_price: Share | Auto = "auto"
    """Price of a cached prompt token, as a share of the price of an uncached one."""
    expected_turns: Positive | Auto = "auto"
    """Number of future requests on which an epoch saves; `auto` estimates it from past growth."""


class RetentionMatch(Section):
    """All given conditions must hold: role, tool name (shell pattern), regular expression in the text."""

    role: str | None = None
    """The message's role."""
    tool: Glob | None = None
    """The tool that the message is a result of, as a shell pattern."""
    content: Regex | None = None
    """A regular expression that is found in the message's text."""

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if self.role is None and self.tool is None and self.content is None:
            raise ValueError("needs at least one of `role`, `tool`, `content`")
        return self


RetentionClass = Literal["critical", "compressible", "batch_compressible", "disposable", "ephemeral"]
"""From the firmest to the first to go."""


class Retention(Section):
    """A rule that gives messages a retention class; the first matching rule applies."""

    match: RetentionMatch
    """Which messages the rule is about."""
    class_: RetentionClass = Field(alias="class")
    """The class that they get."""


class Compactor(Section):
    """A compactor by name."""

    name: Annotated[str, NameIn(COMPACTORS)]
    """The name of the compactor, built in or installed."""


class Tool(Section):
    """How the results of tools are treated whose names match the shell pattern `match`."""

    match: Glob
    """The tools, by a shell pattern of their names."""
    cache_exchanges: Count = 0
    """Number of exchanges for which a result is cached after each use; 0 means not at all."""
    serve: StrictBool = False
    """Whether the proxy answers a call with a cached result, so that it does not reach the client."""
    pure: StrictBool = False
    """Whether a call with the same arguments always has the same result."""
    clear_after: Count = 3
    """Number of newest results that are not cleared from the history."""
    scope: Literal["session"] = "session"
    """Who shares cached results; only a session's own requests can."""
    invalidated_by: tuple[Glob, ...] = ()
    """Tools that change what these tools read: a call of one drops the cached results of these."""

    @model_validator(mode="after")
    def _serves_only_what_is_safe(self) -> Self:
        if self.serve and not (self.pure or self.invalidated_by):
            raise _conflict("`serve = true` needs `pure = true` or `invalidated_by`", "serve")
        return self


class ToolResults(Section):
    """How old tool results in the history are cleared."""

    clear_first: StrictBool = True
    """Whether they are cleared before messages are cut."""
    clear_at_least: Share = 0.1
    """Nothing is cleared if that would free less than this share of the budget without the head."""


class Recall(Section):
    """The recall tool, with which the model searches and rereads what was cut."""

    enabled: StrictBool = False
    """Whether the model is offered the tool."""
    rounds: Positive = 4
    """Number of rounds of tool calls that the proxy may answer within one answer."""
    search: Annotated[str, NameIn(SEARCHES)] = "words"
    """The search: `words`, or the name of a plug-in."""
    embeddings: str = ""
    """Has no effect; accepted because earlier releases had it."""


class Memory(Section):
    """Memory that outlives sessions."""

    enabled: StrictBool = False
    """Whether conversations are remembered, and new sessions told of them."""
    every: Positive = 10
    """Number of exchanges after which a conversation is read."""
    channel_every: Positive = 3
    """Number of such readings after which the texts of its channel or person are written."""
    inject_tokens: Count = 1000
    """Most tokens of memory that a new session is told."""
    long_max_tokens: Positive = 1000
    """Largest long-term text in tokens."""
    short_max_tokens: Positive = 500
    """Largest short-term text in tokens."""
    capacity: Positive = 10_000
    """Number of items that one memory keeps; the weakest are archived before it is full."""
    low: Share = 0.3
    """Items whose score is below this are archived."""
    retention: Seconds | Literal["never"] = 90 * 86_400.0
    """Time for which archived items are kept; `never` means for ever."""
    maintain_at: TimeOfDay = "03:00"
    """Time of the daily run, in UTC."""


class Proof(Section):
    """Measures whether cuts change answers, by asking the model a second time."""

    share: Share = 0.0
    """Share of the requests with a cut view that are asked a second time, after all users; 0 means none."""
    daily_dollars: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """Limit of the cost of second answers in a day (UTC)."""
    daily_tokens: Count = 0
    """Limit of their tokens in a day, prompts and answers, for models whose price is unknown."""


class Append(Section):
    """Options for clients that send only new messages."""

    wait: Seconds = 30.0
    """Longest time that a turn may wait for the turns before it."""
    queue: Positive = 8
    """Number of turns of one session that may wait at once."""


class Store(Section):
    """How sessions are stored, and what happens if the store fails."""

    ttl: PositiveSeconds = 30 * 86_400.0
    """Time for which a session is kept after its last turn."""
    encrypt: StrictBool = False
    """Whether stored contents are encrypted; if any policy of a server says so, all of them are."""
    on_fault: Literal["open", "closed"] = "open"
    """Whether requests are answered while the store is down."""


class Limits(Section):
    """Limits beyond which requests are refused."""

    body: PositiveBytes = 64 * 2**20
    """Largest body of a request in bytes."""
    messages: Positive = 100_000
    """Most messages in one request."""
    streams: Positive = 1000
    """Most requests under way at once in one process."""
