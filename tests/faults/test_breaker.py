"""The breaker: while the store fails, nobody waits for it, and one call at a time tries it again."""

from __future__ import annotations

import pytest

from proxy.adapters.stores.redis.breaker import Breaker
from proxy.errors import StoreUnavailable
from tests.support.stores import HandClock


class TestTheBreaker:
    def test_lets_calls_pass_until_one_fails(self, clock: HandClock) -> None:
        breaker = Breaker(clock, rest=5.0)
        breaker.admit()
        breaker.succeeded()
        breaker.admit()
        breaker.failed(OSError())
        with pytest.raises(StoreUnavailable):
            breaker.admit()

    def test_lets_one_call_try_after_the_rest(self, clock: HandClock) -> None:
        breaker = Breaker(clock, rest=5.0)
        breaker.failed(OSError())
        clock.time += 5.0
        breaker.admit()
        with pytest.raises(StoreUnavailable):
            breaker.admit()
        breaker.succeeded()
        breaker.admit()
        breaker.admit()

    def test_rests_again_when_the_trial_fails(self, clock: HandClock) -> None:
        breaker = Breaker(clock, rest=5.0)
        breaker.failed(OSError())
        clock.time += 5.0
        breaker.admit()
        clock.time += 1.0
        breaker.failed(OSError())
        clock.time += 4.9
        with pytest.raises(StoreUnavailable):
            breaker.admit()

    def test_a_trial_that_never_reports_gives_way_to_another(self, clock: HandClock) -> None:
        breaker = Breaker(clock, rest=5.0)
        breaker.failed(OSError())
        clock.time += 5.0
        breaker.admit()
        clock.time += 5.0
        breaker.admit()
