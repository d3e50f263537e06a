"""Recognises refusals about the context window, order of roles, reasoning, tools, and parameters.

Upstreams do not agree on error codes, so most refusals are recognised by their wording. The rows of
`_WORDINGS` find an exceeded context window and its size: each row is one upstream's sentence, and the first
match counts. Rate limits mention tokens as well and are excluded. Too large a `max_tokens` is no overflow if
it exceeds a limit of the completion alone, and is one if prompt and completion together exceed the window.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw

from proxy.core.dialects.answers import REFUSED, Overflow, Refusal
from proxy.core.formats.json import elements, integer, members, string

# --- a context window that was exceeded ---


_OK = 200
_CODES = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "1261",  # Zhipu, whose message is English or Chinese
    }
)
_READ_AT_MOST = 16 * 1024
"""Characters of a refusal that are searched; what matters is at its start."""
_TEXT_MEMBERS = ("message", "detail", "msg", "error", "errors")
"""Members of an error that say what is wrong; others may quote the request."""
_DEPTH = 5
"""Objects and lists that may be around such a text: Mistral's stands in four."""


class _ErrorText(msgspec.Struct):
    text: str
    codes: set[str]
    window: int | None = None
    prompt_tokens: int | None = None


def _wording(pattern: str) -> re.Pattern[str]:
    """Compile a row: LIMIT is a common beginning, WINDOW and PROMPT are captured numbers, # is any number."""
    number = r"\d{1,9}(?:[,_]\d{3})*(?:\.0)?"
    limit = r"maximum context length (?:is|of) WINDOW tokens[.,]? (?:however,? |and )?"
    pattern = pattern.replace("LIMIT", limit)
    for word in ("WINDOW", "PROMPT"):
        pattern = pattern.replace(word, f"(?P<{word.lower()}>{number})")
    return re.compile(pattern.replace("#", number), re.IGNORECASE)


_WORDINGS = [
    _wording(row)
    for row in (
        # OpenAI and APIs modelled on it: Azure, DeepSeek, vLLM, OpenRouter
        r"LIMITyou requested (?:about )?# tokens \((?P<parts>[^)]*)\)",
        r"LIMITyour (?:messages|prompt|input) resulted in PROMPT tokens",
        # vLLM of 2023, which counts the prompt alone
        r"LIMITyou requested PROMPT tokens in the messages",
        # vLLM of 2025, and of 2026 ("at least" means that it stopped counting: no prompt is captured there)
        r"LIMITyour (?:request|prompt) (?:has|contains) PROMPT input tokens",
        r"LIMITyou requested # output tokens and your prompt contains PROMPT input tokens",
        # vLLM of 2026, which stops counting one token past the limit: no prompt is captured here either
        r"you passed # input tokens and requested # output tokens.{0,40}? context length is only WINDOW",
        # vLLM, its engine, in two forms
        r"prompt \(length PROMPT\).{0,60}? (?:is longer than|exceeds) the maximum model length of WINDOW",
        r"prompt \(total length PROMPT\) is too long to fit into the model \(context length WINDOW",
        # SGLang, in three forms; Together uses the last
        r"LIMITyou requested a total of # tokens: PROMPT tokens from the input",
        r"length \(PROMPT(?: tokens)?\) exceeds .{0,20}?maximum (?:context |allowed )?length \(WINDOW",
        r"input \(PROMPT tokens\) is longer than the model's context length \(WINDOW tokens\)",
        # Mistral
        r"prompt contains PROMPT tokens.{0,60}? too large for model with WINDOW maximum context length",
        # Anthropic, the second by prompt and answer together
        r"prompt is too long: PROMPT tokens > WINDOW maximum",
        r"exceed context limit: PROMPT \+ # > WINDOW",
        # Fireworks
        r"prompt is too long: PROMPT,? model maximum context length: WINDOW",
        # Gemini, with and without the count, at Vertex AI, and behind AI Studio
        r"input token count(?: \(PROMPT\))? exceeds the maximum number of tokens allowed \(?WINDOW",
        r"input token count is PROMPT but model only supports up to WINDOW",
        r"cannot truncate to WINDOW, required PROMPT",
        # xAI
        r"maximum prompt length is WINDOW but the request contains PROMPT tokens",
        # llama.cpp, whose JSON has the numbers as well, and its Python server
        r"request \(PROMPT tokens\) exceeds the available context size \(WINDOW tokens\)",
        r"requested tokens \(PROMPT\) exceed context window of WINDOW",
        # LM Studio, in three forms
        r"keep the first PROMPT tokens when context the overflows.{0,80}? length of only WINDOW tokens",
        r"n_keep:? ?\(?PROMPT\)? ?>= n_ctx:? ?\(?WINDOW",
        r"the input has PROMPT tokens, but the context length only supports WINDOW tokens",
        # Moonshot, whose other number includes the answer
        r"exceeded model token limit: WINDOW",
        # GitHub Copilot
        r"prompt token count of PROMPT exceeds the limit of WINDOW",
        # OpenAI, a limit set for the deployment
        r"input tokens exceed the configured limit of WINDOW tokens\. your .{1,20}? in PROMPT tokens",
        # GitHub Models
        r"request body too large for .{1,80}? model\. max size: WINDOW tokens",
        # Poolside and DeepInfra
        r"input length PROMPT exceeds (?:the )?maximum (?:allowed )?input length (?:of )?WINDOW",
        # Text Generation Inference
        r"inputs` tokens \+ `max_new_tokens` must be <= WINDOW\. given: PROMPT `inputs` tokens",
        r"inputs` must have less than WINDOW tokens\. given: PROMPT",
        # Cohere, by its two APIs
        r"tokens in the prompt cannot exceed WINDOW - received PROMPT",
        r"size limit exceeded by # tokens\..{0,80}? limit for this model is WINDOW tokens",
        r"too many tokens: size limit exceeded by",
        # DashScope
        r"range of input length should be \[\d+, WINDOW\]",
        # Cerebras and Groq
        r"reduce the length of the messages or completion\. current length is # while limit is WINDOW",
        r"reduce the length of the messages",
        # SiliconFlow, in two forms
        r"length of prompt_tokens \(PROMPT\) must be less than max_seq_len \(WINDOW\)",
        r"number of input tokens \(PROMPT\) have exceeded max_prompt_tokens \(WINDOW\)",
        # Cloudflare, by prompt and answer together
        r"input and maximum output tokens \(#\) exceeded this model context window limit \(WINDOW\)",
        # SambaNova
        r"prompt is PROMPT tokens long,.{0,80}? maximum supported sequence length is just WINDOW",
        # watsonx
        r"number of input tokens PROMPT cannot exceed the total tokens limit WINDOW",
        # Bedrock, for Claude, Titan and Nova
        r"input is too long for (?:the )?requested model",
        r"max input tokens: WINDOW, request input token count: PROMPT",
        r"number of input tokens exceeds maximum length",
        # Zhipu and Doubao, then Novita
        r"prompt exceeds max length|total tokens of image and text exceed max message tokens",
        r"input is longer than the model's context length",
        # Ollama; MiniMax
        r"exceeded max context length|input length exceeds the context length|context window exceeds limit",
        # LiteLLM, and servers that quote one of the above without its numbers
        r"ContextWindowExceeded",
        r"(?:maximum context length|context window) (?:is |of )?\(?WINDOW",
        r"maximum context length|prompt is too long|context (?:window|length|size) (?:has been )?exceeded",
        r"(?:exceeds?|greater than) the (?:available )?context (?:window|size|length)|exceed context limit",
        r"input token count exceeds the maximum",
    )
]
_RATE_LIMIT = re.compile(
    r"rate.?limit|per (?:min|hour|day)|\bTP[MD]\b|quota|throttl|too many requests", re.IGNORECASE
)
_PART = re.compile(r"(?<!\d)(\d{1,9}) (?:of |in |for )?(?:the |your )?([a-z ]+)", re.IGNORECASE)


def _texts(raw: bytes | Raw, depth: int = _DEPTH) -> Iterator[str]:
    """Yield what an error says: a text, or what the members named here of an object or a list say."""
    if text := string(raw):
        yield text
    elif depth:
        fields = members(raw) or {}
        for each in elements(raw) or [fields[name] for name in _TEXT_MEMBERS if name in fields]:
            yield from _texts(each, depth - 1)


def _error_text(body: bytes, status: int) -> _ErrorText | None:
    """Read the error in a body: OpenAI's form, a list of one (Gemini), an object, text (Ollama: a string)."""
    whole = (elements(body) or [body])[0]
    top = members(whole)
    if top is None:
        return _ErrorText(body[:_READ_AT_MOST].decode("utf-8", "replace"), set()) if status != _OK else None
    error_of_body = top.get("error", whole)
    error = members(error_of_body) or {}
    details = members(error["metadata"]) if "metadata" in error else None
    quoted = string((details or {}).get("raw"))  # OpenRouter quotes the provider
    return _ErrorText(
        " ".join((*_texts(error_of_body), quoted or ""))[:_READ_AT_MOST],
        {code for name in ("code", "type", "status") if (code := string(error.get(name)))},
        integer(error.get("n_ctx")),
        integer(error.get("n_prompt_tokens")),
    )


def _number(text: str | None) -> int | None:
    return int(text.removesuffix(".0").replace(",", "").replace("_", "")) if text else None


# --- refusals for other reasons than length ---


_BAD_REQUEST = 400
_INVALID = (_BAD_REQUEST, 422)
_TOOLLESS = (*_INVALID, 500)
"""Statuses of refusals that may be about tools."""
_WANTS_ALTERNATION = re.compile(
    rb"roles?[^.]{0,40}alternat|consecutive[^.]{0,40}(?:role|user)|role .?user.? after role", re.IGNORECASE
)
_UNKNOWN_PARAMETER = re.compile(
    rb"(?:unknown|unrecogni[sz]ed|unexpected|unsupported|extra|additional|invalid)[^.]{0,40}"
    rb"(?:parameter|argument|field|propert|name|input|key|param)"
    rb"|(?:parameter|argument|field|propert|input|param)[^.]{0,80}"
    rb"(?:not (?:supported|permitted|allowed|recogni[sz]ed)|unknown|unsupported)",
    re.IGNORECASE,
)
_NO_TOOLS = re.compile(
    rb"(?:\btools?\b|function.call(?:s|ing)?)[^.{}]{0,40}"
    rb"(?:not (?:currently )?(?:supported|permitted|allowed|available|enabled)|requires?\b|too long|too many)"
    rb"|(?:not|n't|cannot)[^.{}]{0,20} (?:support|accept|allow)[^.{}]{0,40}(?:\btools?\b|function.call)"
    rb"|(?:unknown|unrecogni[sz]ed|unexpected|unsupported)[^.{}]{0,40}\btools\b"
    rb'|"body", ?"tools"',
    re.IGNORECASE,
)
_TOOLS = re.compile(rb"\btools?\b|function.call", re.IGNORECASE)
_QUOTE = r"[`'\"\\]{0,3}"
_OF_REASONING = re.compile(
    # Anthropic, also in longer forms that name the changed part of the prefix or tell how to drop the block
    rf"invalid {_QUOTE}signature{_QUOTE} in {_QUOTE}(?:redacted_)?thinking"
    r"|block is bound to a different conversation"
    rf"|thinking{_QUOTE} blocks in [a-z ]{{0,40}} cannot be modified"
    # OpenAI
    r"|encrypted content .{0,200}could not be (?:verified|decrypted)",
    re.IGNORECASE | re.DOTALL,
)
_OF_MEMBER = re.compile(
    # Mistral, which takes nothing that it does not know; Groq and Cerebras, which have a name of their own.
    # DeepSeek refuses messages that lack it: what is wanted back must not match.
    rb"messages\b[^{}]{0,80}?\b(reasoning(?:_content)?)\b[^{}]{0,80}?"
    rb"(?:unsupported|not (?:supported|permitted|allowed)|extra_forbidden)",
    re.IGNORECASE,
)
_ENCRYPTED = "invalid_encrypted_content"


def read_refusal(status: int, body: bytes, request: bytes = b"") -> Refusal:
    """See :meth:`proxy.core.dialects.dialect.Dialect.refusal`."""
    if status == _OK and b'"choices"' in body and b'"error"' not in body:  # part of an answer
        return Refusal()
    text = _error_text(body, status) if (status == _OK or status in REFUSED) and body else None
    is_invalid = status in _INVALID
    return Refusal(
        overflow=None if text is None else _overflow_of(text, request),
        wants_alternation=status == _BAD_REQUEST and _WANTS_ALTERNATION.search(body) is not None,
        rejects_tools=status in _TOOLLESS and _NO_TOOLS.search(body) is not None,
        mentions_tools=is_invalid and _TOOLS.search(body) is not None,
        rejects_reasoning=text is not None
        and (_ENCRYPTED in text.codes or _matched(text, (_OF_REASONING,), request) is not None),
        refused_members=frozenset(
            each.decode().lower() for each in (_OF_MEMBER.findall(body) if is_invalid else ())
        ),
        is_invalid=is_invalid,
        has_unknown_parameter=is_invalid and _UNKNOWN_PARAMETER.search(body) is not None,
        mentions_cache_key=is_invalid and b"prompt_cache_key" in body,
    )


def _overflow_of(refusal: _ErrorText, request: bytes) -> Overflow | None:
    """The context window that a refusal reports as exceeded; None where it is about anything else."""
    has_code = bool(_CODES & refusal.codes)
    if not has_code and _RATE_LIMIT.search(" ".join((refusal.text, *refusal.codes))):
        return None
    found = _matched(refusal, _WORDINGS, b"" if has_code else request)
    if found is None and not has_code:
        return None
    stated = found.groupdict() if found else {}
    # The prompt's share of "4500 in the messages, 500 in the completion": all but the completion's.
    shares = [(int(share), what) for share, what in _PART.findall(stated.get("parts") or "")]
    share = sum(share for share, what in shares if "completion" not in what and "output" not in what)
    return Overflow(
        window=refusal.window or _number(stated.get("window")),
        prompt_tokens=refusal.prompt_tokens or _number(stated.get("prompt")) or share or None,
    )


def _matched(
    refusal: _ErrorText, wordings: Sequence[re.Pattern[str]], request: bytes
) -> re.Match[str] | None:
    """The first wording that matches a refusal and does not occur in the request.

    Upstreams quote requests that they do not understand, and a quoted text is no refusal.
    """
    matches = filter(None, (wording.search(refusal.text) for wording in wordings))
    return next((match for match in matches if match[0].encode() not in request), None)
