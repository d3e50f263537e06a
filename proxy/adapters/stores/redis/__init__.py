"""Redis and Valkey behind the SessionStore port. What is in Redis: `keys.py`."""

from __future__ import annotations

from proxy.adapters.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
