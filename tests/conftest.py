"""What every test shares: how hard the properties try, and whom TLS trusts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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
settings.load_profile("unabridged")


@pytest.fixture(scope="session", autouse=True)
def trusting_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No certificates: all is on loopback, and reading the system's takes longer than most tests do."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("SSL_CERT_FILE", raising=False)
        environment.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("certificates")))
        yield
