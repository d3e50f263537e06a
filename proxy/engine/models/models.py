"""What is known of an upstream's models: their windows, and how they count tokens.

Windows are stated by the policy, by the upstream (:mod:`proxy.engine.models.stated_windows`) and by the price
list; what answers and refusals show overrides all of these (:mod:`proxy.core.budget.learning`). Ratios are
learned from usage. All of it takes effect from the next turn on and is kept in this process; a plan records
the values that it was made with.
"""

from collections.abc import Callable
from enum import Flag, auto

import msgspec

from proxy.cache import CacheMemory, Lru
from proxy.core.budget.budget import Window
from proxy.core.budget.learning import (
    LEAST_SAMPLE,
    LEAST_TRUNCATED,
    MOST_MEDIA_SHARE,
    PLAUSIBLE,
    STEPS,
    CountQuality,
    Growth,
    Ratio,
    WindowEvidence,
    excess,
)
from proxy.core.budget.prices import Prices
from proxy.core.dialects.answers import Overflow, Usage
from proxy.core.policy.policy import Policy
from proxy.engine.models.stated_windows import Stated, StatedWindows
from proxy.ports import Clock
from proxy.telemetry import log_event, log_warning

_PLAUSIBLE = 4
"""How far our count may be off: numbers of more than this many times the tokens sent are ignored."""
_SAMPLES = 5
"""Samples of usage from which on a model's ratio is known well enough (law 1)."""
_LABEL = 80
_LOGGED = 15
"""Most windows of one model that are remembered as logged: each policy may state one."""
_MODEL_BYTES = 2048
"""Estimated bytes of a model, beside its name."""


class Added(Flag):
    """What the proxy adds to a request, and an upstream may refuse."""

    CACHE_KEY = auto()
    USAGE = auto()
    TOOL = auto()
    TOOL_BESIDE_FORMAT = auto()
    """The tool, of a request with a response format."""


NOTHING_ADDED = Added(0)


class Model(msgspec.Struct, kw_only=True):
    """What is known of one model for one caller."""

    name: str
    ratio: Ratio
    """The model's tokens over counted tokens."""
    priced: int | None
    """Context window in tokens according to the price list."""
    stated: Stated
    """What the upstream says about the model's window."""
    evidence: WindowEvidence = msgspec.field(default_factory=WindowEvidence)
    """What answers and refusals show about the model's window."""
    short_samples: int = 0
    """Number of usages seen of requests that are too short to show the ratio."""
    estimates: int = 0
    """Number of usages seen of requests of which too much was estimated to show it."""
    is_estimate_plausible: bool = False
    """Whether the count of such a request was close enough to our own to be a tokenizer's."""
    longest: int = 0
    """Tokens, by our count, of the longest of them."""
    logged: tuple[Window, ...] = ()
    """The windows that were logged."""
    is_overrun_logged: bool = False
    """Whether it was logged that head and last message exceed the window."""
    alternates: bool = False
    """Whether the model has refused two user messages in a row."""
    refused_members: frozenset[str] = frozenset()
    """Members of messages that the upstream does not take, such as reasoning that it wrote itself."""
    refuses: Added = NOTHING_ADDED
    """What the upstream does not take of what the proxy adds."""
    shows_cache: bool = False
    """Whether usage has ever shown tokens that the provider read from its cache."""

    @property
    def label(self) -> str:
        """The model's name in logs and traces, shortened: clients choose names of any length."""
        return self.name[:_LABEL]

    def wants_usage(self, counted: int, window: Window, shown: int | None = 0) -> bool:
        """Whether the usage of a request of so many ``counted`` tokens would teach something.

        ``media_tokens`` are those of its images, audio and files: None where nobody can count all.

        That is so while there are too few samples, or while the window is unknown and no request of this
        length was answered yet. Short requests, which are no samples, are asked as often among themselves.
        """
        sent = self.ratio.calibrated(counted)
        samples, longest = self.ratio.samples, self.evidence.answered
        if shown is None or shown > MOST_MEDIA_SHARE * counted:
            samples, longest = self.estimates, max(longest, self.longest)
        samples = samples if counted >= LEAST_SAMPLE else self.short_samples
        is_longest = sent >= LEAST_TRUNCATED and excess(sent, longest) >= 0
        is_news = samples < _SAMPLES or (window.limit is None and is_longest)
        return is_news and Added.USAGE not in self.refuses

    def remember_ratio(self, ratio: float) -> None:
        """Start from the ratio of a session's last turn, if none was learned here yet."""
        if not self.ratio.samples:
            self.ratio.steps = round(ratio * STEPS)


class Models:
    """The models behind one upstream, separately for each caller (law 6: nobody teaches another)."""

    def __init__(
        self,
        stated: StatedWindows,
        windows: Callable[[str], int | None],
        prices: Callable[[str], Prices],
        clock: Clock,
        memory: CacheMemory,
    ) -> None:
        self.stated = stated
        self._windows = windows
        self.prices = prices
        """Returns a model's present prices by its name."""
        self._clock = clock
        self._models: Lru[tuple[str, str], Model] = Lru(memory, lambda model: _MODEL_BYTES + len(model.name))

    def of(self, tenant: str, name: str) -> Model:
        """Return what is known of a model for a caller, to be kept for one request."""
        return self._models.get_or_make(
            (tenant, name),
            lambda: Model(
                name=name,
                ratio=Ratio.of(name),
                priced=self._windows(name),
                stated=self.stated.of(tenant, name),
            ),
        )

    def window(self, model: Model, policy: Policy) -> Window:
        """Return the model's context window as far as it is known; a change is logged."""
        configured = policy.budget.window(model.name) if policy.budget.windows else None
        now = self._clock.monotonic()
        window = model.evidence.window(configured, model.stated.window, model.priced, now)
        if window not in model.logged and not (
            window.is_least and any(each.is_least for each in model.logged)
        ):
            model.logged = (*model.logged[-_LOGGED:], window)
            log_event(
                "context window", model=model.label, window=window.tokens, window_from=window.source.value
            )
        return window

    def learn_refusal(self, model: Model, counted: int, reserve: int, refusal: Overflow) -> int | None:
        """Learn from a refusal for length what it says, or that there was one.

        Returns the window, in tokens, that the request is to be pruned to. Returns None and learns nothing
        where the refusal cannot be about length: upstreams quote what they do not understand, and a request
        may contain the words of such a refusal. ``counted`` are the tokens that were sent, ``reserve`` those
        that were asked for.
        """
        sent = model.ratio.calibrated(counted)
        if refusal.window and refusal.window > _PLAUSIBLE * sent + reserve:
            return None
        seemed_to_fit = refusal.window is not None and sent + reserve <= refusal.window
        if refusal.prompt_tokens or seemed_to_fit:
            model.ratio.refused(counted, refusal.prompt_tokens)
        now, upstream = self._clock.monotonic(), model.stated.window
        window = model.evidence.learn_refusal(refusal.window, sent, now, upstream)
        fits_alone = refusal.window is not None and (refusal.prompt_tokens or sent) <= refusal.window
        model.evidence.counts_answer = fits_alone
        return window

    def learn_usage(
        self, model: Model, growth: Growth, counted: int, usage: Usage | None, media_tokens: int | None = 0
    ) -> None:
        """Compare our count of a request's tokens with the upstream's; ``growth`` is that of its lane.

        Where many tokens are those of images, audio or files, our count is an estimate: it can be too low for
        this model, but says nothing of its tokenizer. Where ``media_tokens`` is None the provider has added
        tokens, so a count that is higher says nothing either.
        """
        if usage is None or not usage.prompt_tokens:
            return
        model.shows_cache |= bool(usage.cached_tokens)
        model.short_samples += counted < LEAST_SAMPLE
        prompt, sent, evidence = usage.prompt_tokens, model.ratio.calibrated(counted), model.evidence
        now = self._clock.monotonic()
        # Whether any recent sample is close enough to our own count to be another tokenizer's.
        is_plausible = model.is_estimate_plausible or max(model.ratio.recent, default=0.0) >= PLAUSIBLE
        has_agreed = is_plausible and evidence.is_tracked
        sample = (
            CountQuality.UNRELIABLE
            if media_tokens is None
            else growth.observe(counted, prompt, media_tokens, model.ratio.value)
        )
        is_estimate = media_tokens is None or media_tokens > MOST_MEDIA_SHARE * counted
        if is_estimate and counted >= LEAST_SAMPLE:
            model.estimates += 1
            model.is_estimate_plausible |= prompt * STEPS >= PLAUSIBLE * counted
            model.longest = max(model.longest, sent)
        if sample is not CountQuality.UNRELIABLE and (prompt > sent or not is_estimate):
            model.ratio.observe(counted, prompt)
        evidence.is_tracked |= sample is CountQuality.GROWING
        if prompt <= _PLAUSIBLE * model.ratio.calibrated(counted):
            evidence.learn_answer(prompt, now)
        window = growth.window if has_agreed else None
        if window is not None and evidence.refused != window and evidence.learn_truncation(window, now):
            log_warning(
                "the upstream truncates in silence: it counts no more than its window, whatever is sent",
                model=model.label,
                window=window,
                sent=model.ratio.calibrated(counted),
            )
