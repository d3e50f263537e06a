"""The request with which the upstream goes on once calls have been answered."""

from collections.abc import Callable, Sequence

from proxy.core.body import Body, read_body
from proxy.core.rawjson import elements, members, string

_ANY_NUMBER = 2**31
_ABOUT_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
"""What the API refuses in a request without tools."""
_LEFT_TO_THE_MODEL = (None, "auto", "required")


def may_hide(body: Body) -> bool:
    """Whether calls may be answered out of the client's sight: one answer, which may call any tool."""
    return body.get("n") in (None, 1) and body.get("tool_choice") in _LEFT_TO_THE_MODEL


def continued(raw: bytes, messages: Sequence[bytes]) -> bytes:
    """A request that goes on with these messages, every other byte as it was."""
    return read_body(raw, _ANY_NUMBER).followed_by(messages) if messages else raw


def without_tools(raw: bytes, is_meant: Callable[[str], bool]) -> bytes:
    """A request without these tools; without anything about tools, where none is left."""
    body = read_body(raw, _ANY_NUMBER)
    tools = elements(body.slice("tools")) or []
    left = [bytes(tool) for tool in tools if not is_meant(_name(bytes(tool)))]
    if len(left) == len(tools):
        return raw
    if left:
        return body.with_member("tools", b"[" + b",".join(left) + b"]")
    for name in _ABOUT_TOOLS:
        if name in body.members:
            body = body.without(name)
    return body.raw


def _name(tool: bytes) -> str:
    function = members((members(tool) or {}).get("function", b"null")) or {}
    return string(function.get("name")) or ""
