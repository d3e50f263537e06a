"""The SessionStore port over Redis and Valkey. The layout of the keys is documented in `keys.py`."""

from __future__ import annotations

from proxy.adapters.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
