"""The request with which the upstream goes on once calls have been answered."""

from collections.abc import Callable, Mapping, Sequence

from proxy.core.dialects.chat.body import Body, read_body
from proxy.core.formats.json import as_mapping, dumps, elements, loads, members, string

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
    functions = [members((members(tool) or {}).get("function", b"null")) or {} for tool in tools]
    names = [string(function.get("name")) or "" for function in functions]
    left = [bytes(tool) for tool, name in zip(tools, names, strict=True) if not is_meant(name)]
    if len(left) == len(tools):
        return raw
    if left:
        return body.with_member("tools", b"[" + b",".join(left) + b"]")
    for name in _ABOUT_TOOLS:
        if name in body.members:
            body = body.without(name)
    return body.raw


# --- what several requests to the upstream have cost together, told as the usage of one answer ---


def summed(*usages: bytes) -> bytes:
    """The sum of usages, each as JSON or empty: numbers are added, details member by member."""
    total: object = None
    for usage in usages:
        if usage:
            total = _sum(total, loads(usage))
    return b"" if total is None else dumps(total)


def _sum(first: object, second: object) -> object:
    one, other = as_mapping(first), as_mapping(second)
    if one and other:
        return {name: _sum(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first + second
    return first if second is None else second


# --- what stands upstream for an answer in which calls were hidden, in its place among a chain's messages ---


def placed(
    raws: Sequence[bytes], hashes: Sequence[bytes], said: Mapping[bytes, Sequence[bytes]]
) -> Sequence[bytes]:
    """The messages with those that are ``said`` in the place of one; they are one slice, joined by commas.

    So positions stay those of the chain, and an array joined from the slices holds all of the messages.
    """
    if not said:
        return raws
    return [b",".join(said[each]) if each in said else raw for raw, each in zip(raws, hashes, strict=True)]


def parted(slices: Sequence[bytes], said: Mapping[bytes, Sequence[bytes]]) -> list[bytes]:
    """The single messages of such slices."""
    several = {b",".join(messages): messages for messages in said.values()}
    return [raw for each in slices for raw in several.get(each, (each,))]
