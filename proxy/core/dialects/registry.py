"""The dialects that are spoken: whoever needs one is given it from here."""

from proxy.core.dialects.chat.dialect import CHAT

__all__ = ["CHAT"]
