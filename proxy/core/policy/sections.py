"""The tables of a policy file, each with its keys, their defaults and the rules between them.

The models are the policy file, key for key; the defaults are the `default` preset of its
appendix. Durations are seconds, sizes are bytes and shares are fractions of one, however a file writes them.
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
        use_attribute_docstrings=True,  # the schema tells them to editors
    )


def _conflict(message: str, *keys: str) -> PydanticCustomError:
    """Keys that contradict each other; `keys`, dotted and within the section, help to find the line."""
    return PydanticCustomError("conflict", "{message}", {"message": message, "keys": keys})


class Budget(Section):
    """How large a forwarded request may be. `auto` is what the model's window allows."""

    tokens: Positive | Auto = "auto"
    reserve: Count | Auto = "auto"
    """Tokens kept free for the answer; `auto`: the request's max tokens, else an eighth of the window."""
    bytes: Bytes = 0
    """Ceiling of the forwarded body, beside its tokens; 0 is none."""
    overflow: Literal["forward", "error"] = "forward"
    windows: Mapping[Glob, Positive] = {}
    """Context windows in tokens, by model name (shell patterns); before any price list, first match wins."""

    def window(self, model: str) -> int | None:
        """Tokens of the window that this policy states for `model`, if it states one."""
        for match, tokens in self.windows.items():
            if fnmatchcase(model, match):
                return tokens
        return None


class Stages(Section):
    """At which usage what begins, in shares of the budget."""

    warn: Share = 0.60
    trim: Share = 0.80
    compact: Share = 0.90
    emergency: Share = 1.00
    target: Share = 0.50
    """The goal of an epoch: this share of what the budget leaves beside the head."""
    max_units: Count = 0
    """Units that came free to be cut since the last epoch and begin the next one at any usage; 0 is never."""

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
    """The numbers behind a message's score."""

    recency: Share = 0.3
    role: Share = 0.3
    content: Share = 0.4
    low: Share = 0.5
    """Runs of one or two messages between two gaps that score below this are cut with these."""
    keywords: tuple[str, ...] = KEYWORDS
    markers: tuple[str, ...] = ("[SYSTEM:", "[User", "[TASK")
    approvals: tuple[str, ...] = ("approval", "duck_call")
    """Words, compared without case, that count beside the keywords."""
    success: Share = 0.0
    """What words for a success count beside the other keywords; 0 counts them as keywords like any other."""
    tool_marker: str = "[Tool:"
    short_length: Count = 20
    """Characters below which a message counts as short."""
    short_penalty: Share = 0.7
    roles: Mapping[str, Share] = ROLES

    @field_validator("roles")
    @classmethod
    def _fill_in_roles(cls, roles: Mapping[str, float]) -> Mapping[str, float]:
        return {**ROLES, **roles}

    @cached_property
    def counted_keywords(self) -> tuple[str, ...]:
        """The keywords but for those that count apart, as words for a success."""
        successes = {each.lower() for each in SUCCESSES} if self.success else set[str]()
        return tuple(each for each in self.keywords if each.lower() not in successes)


_THIRD = 1 / 3


class Keep(Section):
    """What is protected while there is room."""

    recent: Share = 0.25
    """Share of the budget that the newest units may fill uncut."""
    first_user: StrictBool | Share = True
    """The first user message, and the share of the room that it may fill; `true` is a third."""
    pins: tuple[Regex, ...] = ()
    """Messages whose text one of these is found in."""

    @property
    def first_user_share(self) -> float:
        """Share of the room from which on the first user message is clipped; 0 where nothing keeps it."""
        return _THIRD if self.first_user is True else float(self.first_user)


class Summary(Section):
    """How what was cut is summarised."""

    enabled: StrictBool = True
    model: str = ""
    """The model that writes; empty is the conversation's own."""
    min_gap: Positive = 5
    """Messages; a smaller gap gets a notice."""
    max_tokens: Positive | Auto = "auto"
    """Of one summary; `Policy.summary_tokens` fits it to the budget."""
    max_characters: Count = 0
    """Of one summary, beside its tokens; 0 is any number."""
    temperature: Annotated[float, Field(strict=True, ge=0, le=2)] = 0.3
    wait: Seconds = 2.5
    """Seconds that a request may wait for its summary."""
    timeout: Seconds = 30.0
    """Seconds that one call to the model may take."""
    role: Literal["user", "system", "developer"] = "user"
    alternate: StrictBool | Auto = "auto"
    """Whether the model insists on alternating roles; `auto` learns it from a refusal."""
    prompt: str = ""
    """Instruction to the model that writes; empty is the built-in one."""
    cached_prefix: StrictBool = True
    """Whether a summary may be asked for behind what was sent last, which the provider has cached."""
    shadow: StrictBool = False
    """Whether summaries are written in shadow too, where nobody gets them but those who look."""


_LEAST_LEDGER = 1600


class Ledger(Section):
    """Facts that are carried word for word out of what was cut."""

    share: Share = 0.10
    least: Count | Auto = "auto"
    """Tokens that the ledger may have under a small budget; `auto`: 1,600 where `share` is the default."""
    constraints: StrictBool = True
    identifiers: StrictBool = True

    @property
    def tokens(self) -> int:
        """`least` in tokens. A share that a policy chooses for itself is a bound."""
        if self.least == "auto":
            return _LEAST_LEDGER if self.share == Ledger.model_fields["share"].default else 0
        return self.least


StrategyName = Annotated[str, NameIn(STRATEGIES)]


class Strategy(Section):
    """Which rule chooses what is cut, and the numbers of those that count."""

    name: StrategyName = "importance"
    last: Positive = 20
    exchanges: Positive = 10
    roll_to: Positive = 5
    answer_max: Bytes = 750
    answer_to: Bytes = 500
    condense_active: StrictBool = False
    """Whether long answers of exchanges that stay are condensed too, when others roll."""
    summary_max: Bytes = 4000
    summary_to: Bytes = 3000
    idle: Seconds = 1800.0

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
    """When pruning pays. `auto` asks the price list."""

    enabled: StrictBool = True
    """Whether *trim* waits while an epoch costs more than it saves, and the provider's cache is named."""
    cache_ttl: Seconds | Auto = "auto"
    """Seconds after which the provider has forgotten a prompt that nobody sent again."""
    cached_price: Share | Auto = "auto"
    """Price of a cached prompt token, as a share of a fresh one's."""
    expected_turns: Positive | Auto = "auto"
    """Calls to come on which an epoch saves; `auto`: by the pace at which the conversation grows."""


class RetentionMatch(Section):
    """All that is given must hold: a role, a tool's name (shell pattern), a regex found in the text."""

    role: str | None = None
    tool: Glob | None = None
    content: Regex | None = None

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if self.role is None and self.tool is None and self.content is None:
            raise ValueError("needs at least one of `role`, `tool`, `content`")
        return self


RetentionClass = Literal["critical", "compressible", "batch_compressible", "disposable", "ephemeral"]


class Retention(Section):
    """A rule that gives units a class; the first match wins."""

    match: RetentionMatch
    class_: RetentionClass = Field(alias="class")


class Compactor(Section):
    """A compactor by name."""

    name: Annotated[str, NameIn(COMPACTORS)]


class Tool(Section):
    """What may be done with the results of tools whose names match the shell pattern `match`."""

    match: Glob
    cache_exchanges: Count = 0
    """Exchanges for which a result is kept after each use; 0 is not at all."""
    serve: StrictBool = False
    """Whether a call is answered with a result that is kept, and never reaches the client."""
    pure: StrictBool = False
    """Whether a call with the same arguments always has the same result."""
    clear_after: Count = 3
    """Newer results that keep a result from being cleared out of the history."""
    scope: Literal["session"] = "session"
    """Who shares results: one session alone."""
    invalidated_by: tuple[Glob, ...] = ()
    """Tools that change what these read: a call of one empties what is kept of these."""

    @model_validator(mode="after")
    def _serves_only_what_is_safe(self) -> Self:
        if self.serve and not (self.pure or self.invalidated_by):
            raise _conflict("`serve = true` needs `pure = true` or `invalidated_by`", "serve")
        return self


class ToolResults(Section):
    """Tool results in the history."""

    clear_first: StrictBool = True
    clear_at_least: Share = 0.1


class Recall(Section):
    """The tool with which the model reads again what was cut."""

    enabled: StrictBool = False
    rounds: Positive = 4
    """Calls of the model that one answer may take."""
    search: Annotated[str, NameIn(SEARCHES)] = "words"
    """By what is looked for what was cut."""
    embeddings: str = ""
    """Does nothing: policies that name a model here are still read."""


class Memory(Section):
    """What outlives a session."""

    enabled: StrictBool = False
    every: Positive = 10
    channel_every: Positive = 3
    inject_tokens: Count = 1000
    long_max_tokens: Positive = 1000
    short_max_tokens: Positive = 500
    capacity: Positive = 10_000
    low: Share = 0.3
    retention: Seconds | Literal["never"] = 90 * 86_400.0
    maintain_at: TimeOfDay = "03:00"


class Proof(Section):
    """Whether cuts change answers, found out by asking once more."""

    share: Share = 0.0
    """Of the requests whose view is cut: so many are asked once more, behind all users; 0 is none."""
    daily_dollars: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """What that may cost in a day (UTC)."""
    daily_tokens: Count = 0
    """Tokens of prompts and answers that it may take in a day, of models whose price nobody knows."""


class Append(Section):
    """Clients that send only what is new."""

    wait: Seconds = 30.0
    queue: Positive = 8


class Store(Section):
    """How long sessions live, and what a fault of the store means."""

    ttl: PositiveSeconds = 30 * 86_400.0
    encrypt: StrictBool = False
    """Contents are encrypted at rest. One policy that says so decides for all of a server's."""
    on_fault: Literal["open", "closed"] = "open"


class Limits(Section):
    """What is refused."""

    body: PositiveBytes = 64 * 2**20
    messages: Positive = 100_000
    streams: Positive = 1000
