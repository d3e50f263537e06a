"""The dialects that are spoken: whoever needs one is given it from here."""

from collections.abc import Mapping

from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.wire import WireFormat

DIALECTS: Mapping[str, WireFormat] = {each.name: each for each in (CHAT,)}
"""By name."""

__all__ = ["CHAT", "DIALECTS"]
