"""What every test shares: how hard the properties try."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "unabridged",
    max_examples=25,
    phases=(Phase.explicit, Phase.generate),  # shrinking a conversation takes minutes: explore does it
    deadline=None,  # outcomes are asserted, never wall time
    derandomize=True,  # the same examples on every machine; explore with --hypothesis-profile=explore
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "explore",
    settings.get_profile("unabridged"),
    max_examples=1_000,
    phases=tuple(Phase),
    derandomize=False,
)
settings.register_profile(
    "soak", settings.get_profile("unabridged"), max_examples=10_000, derandomize=False, print_blob=True
)
settings.load_profile("unabridged")
