"""Redis and Valkey behind the SessionStore port. What is in Redis: :mod:`proxy.adapters.redis.keys`."""

from __future__ import annotations

from proxy.adapters.redis.store import RedisStore

__all__ = ["RedisStore"]
