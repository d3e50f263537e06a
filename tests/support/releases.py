"""A newer release beside this one: its records are of the next version, and it reads both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from proxy.adapters import stores
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import SEALED, VERSION, Codec, beginnings
from proxy.adapters.stores.redis.scripts import Scripts
from proxy.ports import SessionKey

T = TypeVar("T")

NEWER = tuple(bytes([first[0] + 1]) for first in (VERSION, SEALED))
"""With what its records begin, plain and sealed ones."""


class NewerCodec(Codec):
    def encode(self, record: object, place: bytes, version: bytes = VERSION) -> bytes:
        stored = super().encode(record, place, version)
        return bytes([stored[0] + 1]) + stored[1:]

    def decode_any(
        self, stored: bytes, kind: type[T], place: bytes, versions: Sequence[bytes]
    ) -> tuple[T, bytes]:
        if stored.startswith(NEWER):
            stored = bytes([stored[0] - 1]) + stored[1:]
        return super().decode_any(stored, kind, place, versions)


class NewerStore(RedisStore):
    """The store of the newer release."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        ours = beginnings(self._keyring)
        both = (*ours, *(bytes([each[0] + 1]) + each[1:] for each in ours))
        self._scripts = Scripts(self._connection, both)

    def _codec(self, key: SessionKey) -> Codec:
        return NewerCodec(key, self._keyring, self._warn_of_newer)


def install_newer(patch: pytest.MonkeyPatch) -> None:
    """Make all stores that are opened from now on stores of the newer release."""
    patch.setattr(stores, "RedisStore", NewerStore)
