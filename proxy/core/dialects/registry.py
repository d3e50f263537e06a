"""All supported dialects; other code gets a dialect from here."""

from collections.abc import Mapping

from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.dialect import Dialect

DIALECTS: Mapping[str, Dialect] = {each.name: each for each in (CHAT,)}
"""Dialects by name."""

__all__ = ["CHAT", "DIALECTS"]
