"""Reads the usage of answers in the forms that upstreams write, and adds up that of several requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.core.dialects.answers import Usage
from proxy.core.dialects.chat.delta import NULL
from proxy.core.formats.json import as_mapping, dumps, loads, members

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw


def reported_usage(usage: Raw, in_choice: Raw, x_groq: Raw) -> bytes:
    """Return the usage of a chunk as JSON: its own, else its choice's (Moonshot), else Groq's; empty if none.

    Of an answer the last one counts, since both may tell the same once more at the end.
    """
    for told in (usage, in_choice):
        if bytes(told)[:1] == b"{":
            return bytes(told)
    of_groq = NULL if x_groq == NULL else (members(x_groq) or {}).get("usage", NULL)
    return bytes(of_groq) if bytes(of_groq)[:1] == b"{" else b""


def read_usage(usage: bytes | Raw, timings: bytes | Raw = NULL) -> Usage | None:
    """Read the usage in the forms of OpenAI, DeepSeek, Moonshot, gateways to Anthropic's models, llama.cpp.

    xAI and Gemini count reasoning in the total alone; here it belongs to the output, as OpenAI has it.
    """
    if bytes(usage)[:1] != b"{":
        return None
    reported = _object(usage)
    details = as_mapping(reported.get("prompt_tokens_details"))
    others = (reported.get(name) for name in ("prompt_cache_hit_tokens", "cached_tokens"))
    found = map(_count, (details.get("cached_tokens"), *others))
    cached = next((count for count in found if count is not None), None)
    if cached is None and timings != NULL:
        cached = _count(_object(timings).get("cache_n"))
    written = _count(details.get("cache_write_tokens"))
    if written is None:
        written = _count(reported.get("cache_creation_input_tokens"))
    prompt, output = _count(reported.get("prompt_tokens")), _count(reported.get("completion_tokens"))
    beside = (_count(reported.get("total_tokens")) or 0) - (prompt or 0) - (output or 0)
    reasoning = _count(as_mapping(reported.get("completion_tokens_details")).get("reasoning_tokens"))
    is_reasoning = reasoning == beside or (reasoning is None and written is None and beside != cached)
    if output is not None and beside > 0 and is_reasoning:
        output, reasoning = output + beside, beside
    return Usage(prompt, output, cached, written, reasoning)


def _object(raw: bytes | Raw) -> Mapping[str, Any]:
    try:
        return as_mapping(loads(bytes(raw)))
    except ValueError:
        return {}


def _count(value: object) -> int | None:
    """A number of tokens; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


# --- the usage of several requests to the upstream, summed into the usage of one answer ---


def usage_of(usage: bytes) -> Usage:
    """Read a usage, given as JSON or empty, as that of an answer is read."""
    return read_usage(usage or b"{}") or Usage()


def summed(*usages: bytes) -> bytes:
    """Add up usages, each given as JSON or empty: numbers are added, details member by member.

    Of all else, such as texts and flags, the last one counts.
    """
    total: object = None
    for usage in usages:
        if usage:
            total = _sum(total, loads(usage))
    return b"" if total is None else dumps(total)


def _sum(first: object, second: object) -> object:
    one, other = as_mapping(first), as_mapping(second)
    if one and other:
        return {name: _sum(one.get(name), other.get(name)) for name in {**one, **other}}
    is_flag = isinstance(first, bool) or isinstance(second, bool)
    if not is_flag and isinstance(first, int | float) and isinstance(second, int | float):
        return first + second
    return first if second is None else second
