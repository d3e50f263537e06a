"""What upstreams say when a prompt does not fit, and what only sounds like it."""

from __future__ import annotations

import json

import pytest

from proxy.core.dialects.answers import Overflow
from proxy.core.dialects.registry import CHAT


def read_overflow(status: int, body: bytes, request: bytes = b"") -> Overflow | None:
    return CHAT.refusal(status, body, request).overflow


def said(message: str, **members: object) -> bytes:
    return json.dumps({"error": {"message": message, **members}}).encode()


OPENAI = "This model's maximum context length is 8192 tokens. However, "
VLLM_2026 = (
    "you requested 64000 output tokens and your prompt contains at least 138753 input tokens, for a total"
)

STATED = {
    "openai": (OPENAI + "your messages resulted in 9001 tokens. Please reduce", 8192, 9001),
    "openai, with an answer": (
        OPENAI + "you requested 8256 tokens (64 in the messages, 8192 in the completion)",
        8192,
        64,
    ),
    "openai, with functions": (
        OPENAI
        + "you requested 9180 tokens (7500 in the messages, 80 in the functions, and 1600 in the completion)",
        8192,
        7580,
    ),
    "openai, older": (
        (
            "This model's maximum context length is 4097 tokens, however you requested 4231 tokens "
            "(3975 in your prompt; 256 for the completion). Please reduce your prompt; or completion length."
        ),
        4097,
        3975,
    ),
    "openai, no split": (OPENAI + "you requested 351430 tokens. Please reduce", 8192, None),
    "openai, deployment": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.",
        272000,
        509178,
    ),
    "openrouter": (
        (
            "This endpoint's maximum context length is 256000 tokens. However, you requested about "
            "424983 tokens (358454 of text input, 56529 of tool input, 10000 in the output)."
        ),
        256000,
        414983,
    ),
    "vllm 0.8": (OPENAI + "your request has 9000 input tokens. Please reduce", 8192, 9000),
    "vllm 0.10": (
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 64000. This model's maximum context "
            "length is 64001 tokens and your request has 24235 input tokens (64000 > 64001 - 24235)."
        ),
        64001,
        24235,
    ),
    "vllm 2026": (OPENAI.replace("8192", "202752") + VLLM_2026, 202752, None),
    "vllm 2026, where it stopped counting": (
        (
            "You passed 57345 input tokens and requested 8192 output tokens. However, the model's context "
            "length is only 65536 tokens, resulting in a maximum input length of 57344 tokens. Please reduce "
            "the length of the input prompt. (parameter=input_tokens, value=57345)"
        ),
        65536,
        None,
    ),
    "vllm engine, with images": (
        (
            "The prompt (total length 25938) is too long to fit into the model (context length 4096). Make "
            "sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens."
        ),
        4096,
        25938,
    ),
    "vllm engine": (
        "The decoder prompt (length 11466) is longer than the maximum model length of 8192. Make sure",
        8192,
        11466,
    ),
    "sglang": (
        (
            "Requested token count exceeds the model's maximum context length of 131072 tokens. You "
            "requested a total of 140000 tokens: 132000 tokens from the input messages and 8000 tokens for "
            "the completion."
        ),
        131072,
        132000,
    ),
    "sglang, length": (
        "Input length (265330) exceeds model's maximum context length (262144).",
        262144,
        265330,
    ),
    "together": (
        "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
        262144,
        516368,
    ),
    "mistral": (
        (
            "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context "
            "length"
        ),
        32768,
        65673,
    ),
    "anthropic": ("prompt is too long: 210000 tokens > 200000 maximum", 200000, 210000),
    "anthropic, with an answer": (
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
        200000,
        188240,
    ),
    "fireworks": ("The prompt is too long: 221782, model maximum context length: 202752", 202752, 221782),
    "gemini": (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1048576,
        1200000,
    ),
    "gemini, ai studio": (
        "[original: beyond::dependency::INVALID_ARGUMENT] Cannot truncate to 89998, required 355220: text",
        89998,
        355220,
    ),
    "gemini, no count": (
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
        1048576,
        None,
    ),
    "vertex": (
        (
            "Unable to submit request because the input token count is 1251952 but model only supports up to "
            "1048576. Reduce the input token count and try again."
        ),
        1048576,
        1251952,
    ),
    "xai": (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        131072,
        537812,
    ),
    "llama.cpp": (
        "request (1407 tokens) exceeds the available context size (256 tokens), try increasing it",
        256,
        1407,
    ),
    "llama.cpp, older": ("the request exceeds the available context size. try increasing it", None, None),
    "llama.cpp, slots that share their cache": ("Context size has been exceeded.", None, None),
    "llama-cpp-python": ("Requested tokens (2285) exceed context window of 2048", 2048, 2285),
    "lm studio": (
        (
            "Trying to keep the first 4500 tokens when context the overflows. However, the model is loaded "
            "with context length of only 4096 tokens, which is not enough."
        ),
        4096,
        4500,
    ),
    "lm studio, what is kept": (
        (
            "The number of tokens to keep from the initial prompt is greater than the context length "
            "(n_keep: 15028>= n_ctx: 7424). Try to load the model with a larger context length"
        ),
        7424,
        15028,
    ),
    "lm studio, mlx": (
        (
            "Input does not fit in context length. The input has 31430 tokens, but the context length only "
            "supports 30000 tokens."
        ),
        30000,
        31430,
    ),
    "lm studio, 2026": ("Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)", 7424, 15028),
    "moonshot": ("Your request exceeded model token limit: 256000 (requested: 300000)", 256000, None),
    "copilot": ("prompt token count of 200000 exceeds the limit of 128000", 128000, 200000),
    "tgi": (
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. "
            "Given: 4000 `inputs` tokens and 500"
        ),
        4096,
        4000,
    ),
    "cohere": (
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.",
        4081,
        4292,
    ),
    "cohere, 2024": (
        (
            "too many tokens: size limit exceeded by 105000 tokens. Try using shorter or fewer inputs. The "
            "limit for this model is 8992 tokens."
        ),
        8992,
        None,
    ),
    "cohere, without the limit": (
        (
            "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs, or "
            "setting prompt_truncation='AUTO'."
        ),
        None,
        None,
    ),
    "github models": ("Request body too large for gpt-4o model. Max size: 8000 tokens.", 8000, None),
    "poolside": (
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
        131040,
        131393,
    ),
    "deepinfra": ("Requested input length 39818 exceeds maximum input length 32767", 32767, 39818),
    "siliconflow": ("length of prompt_tokens (57535) must be less than max_seq_len (32768).", 32768, 57535),
    "siliconflow, 2026": (
        "number of input tokens (83121) have exceeded max_prompt_tokens (65536) limit.",
        65536,
        83121,
    ),
    "cloudflare": (
        (
            "AiError: The estimated number of input and maximum output tokens (35000) exceeded this model "
            "context window limit (24000). (85d6d2d8-2c3b)"
        ),
        24000,
        None,
    ),
    "sambanova": (
        (
            "Requested generation length 1 is not possible! The provided prompt is 4309 tokens long, so "
            "generating 1 tokens requires a sequence length of 4310, but the maximum supported sequence "
            "length is just 4096!"
        ),
        4096,
        4309,
    ),
    "watsonx": (
        (
            "Invalid input argument for Model 'meta-llama/llama-2-70b-chat': the number of input tokens 4098 "
            "cannot exceed the total tokens limit 4096 for this model"
        ),
        4096,
        4098,
    ),
    "dashscope": ("Range of input length should be [1, 98304]", 98304, None),
    "ollama": ("prompt too long; exceeded max context length by 17 tokens", None, None),
    "openai, responses": ("Your input exceeds the context window of this model.", None, None),
    "bedrock, titan": (
        "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9279 ",
        8192,
        9279,
    ),
    "bedrock, nova": (
        (
            "The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds "
            "maximum length. Please update the input to try again."
        ),
        None,
        None,
    ),
    "zhipu": ("Prompt exceeds max length", None, None),
    "doubao": ("Total tokens of image and text exceed max message tokens. Request id: 0217", None, None),
    "novita": ("The input is longer than the model's context length trace_id: bbb02d9c", None, None),
    "bedrock": ("Input is too long for requested model.", None, None),
    "minimax": ("invalid params, context window exceeds limit", None, None),
    "litellm": ("litellm.ContextWindowExceededError: AnthropicException", None, None),
}


@pytest.mark.parametrize("upstream", STATED)
def test_the_wording_of_an_upstream_teaches_the_window_and_the_prompt(upstream: str) -> None:
    message, window, prompt = STATED[upstream]
    assert read_overflow(400, said(message, code=400, type="BadRequestError")) == Overflow(window, prompt)


@pytest.mark.parametrize("code", ["context_length_exceeded", "1261"])
def test_the_code_alone_is_enough(code: str) -> None:
    assert read_overflow(400, said("Too long.", code=code)) == Overflow()


def test_llama_cpp_states_its_numbers_beside_the_message() -> None:
    body = said(
        "the request exceeds", code=500, type="exceed_context_size_error", n_prompt_tokens=1407, n_ctx=256
    )
    assert read_overflow(500, body) == Overflow(256, 1407)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": "prompt is too long: 9 tokens > 8 maximum"}',
        b'{"object": "error", "message": "prompt is too long: 9 tokens > 8 maximum", "code": 400}',
        b'[{"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}]',
        b'{"detail": "prompt is too long: 9 tokens > 8 maximum"}',
        (
            b'{"error": {"message": "Provider returned error", "metadata": '
            b'{"raw": "{\\"message\\": \\"prompt is too long: 9 tokens > 8 maximum\\"}"}}}'
        ),
        b"prompt is too long: 9 tokens > 8 maximum",
        b'{"success": false, "errors": [{"message": "prompt is too long: 9 tokens > 8 maximum"}]}',
        b'{"detail": {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}}',
        b'{"detail": [{"type": "value_error", "msg": "prompt is too long: 9 tokens > 8 maximum"}]}',
        (
            b'{"object": "error", "message": {"detail": [{"loc": ["body"], "msg": '
            b'"prompt is too long: 9 tokens > 8 maximum"}]}, "type": "invalid_request_error"}'
        ),
        b'{"error": {"message": {"detail": [{"msg": "prompt is too long: 9 tokens > 8 maximum"}]}}}',
    ],
)
def test_the_error_is_found_in_whatever_shape_it_comes(body: bytes) -> None:
    assert read_overflow(400, body) == Overflow(8, 9)


def test_an_error_event_in_a_stream_counts() -> None:
    assert read_overflow(200, said("prompt is too long: 9 tokens > 8 maximum")) == Overflow(8, 9)


@pytest.mark.parametrize(
    "message",
    [
        (
            "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you "
            "provided 8192."
        ),
        (
            "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000. "
            "Please reduce the length of the messages."
        ),
        "Throttling error: Too many tokens, please wait before trying again.",
        "Rate limit exceeded: the maximum context length of your plan, retry after 30 seconds.",
        "You exceeded your current quota, please check your plan and billing details.",
        "max_tokens must be at least 1, got -186.",
        "max_tokens=140000 cannot be greater than max_model_len=max_total_tokens=131072.",
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64.",
        "max_completion_tokens is too large: 262144. This model supports at most 256000 completion tokens.",
        "The maximum tokens you requested exceeds the model limit of 4096. Try again with a lower value.",
        "Range of max_tokens should be [1, 8192]",
        "too many tokens: max tokens must be less than or equal to 4096, the maximum output - received 8192.",
        "Input Tokens per minute exceeded: number of input tokens exceeds maximum length of your quota.",
        "Prompt tokens limit exceeded: 9000 > 1234. To increase, add credits and upgrade your account.",
        "Request body too large. Max size: 4000000 bytes.",
        "Input exceeds maximum input length of 1048576 characters.",
        "Rate limit of 150 per 86400s exceeded for UserByModelByDay. Max size: 8000 tokens.",
        "The server had an error while processing your request.",
        "",
    ],
)
def test_what_only_sounds_like_it_is_let_through(message: str) -> None:
    assert read_overflow(400, said(message, type="invalid_request_error")) is None


@pytest.mark.parametrize("status", [401, 403, 404, 429])
def test_other_statuses_mean_what_they_say(status: int) -> None:
    assert read_overflow(status, said("prompt is too long: 9 tokens > 8 maximum")) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"error": null}',
        b'{"error": {"message": 5}}',
        b"<html><h1>413 Request Entity Too Large</h1></html>",
        b'{"error": {"message": "\\ud83d"}}',
        b'{"detail": [{"msg": "Field required", "input": "prompt is too long: 9 tokens > 8 maximum"}]}',
        b'{"detail": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_body_that_says_nothing_is_no_overflow(body: bytes) -> None:
    assert read_overflow(413, body) is None


QUOTED = "prompt is too long: 5000 tokens > 4096 maximum"


def test_words_of_the_request_that_an_error_quotes_are_no_refusal() -> None:
    request = json.dumps({"messages": [{"role": "user", "content": f"What does “{QUOTED}” mean?"}]}).encode()
    quoting = said(f"[{{'type': 'missing', 'input': {{'content': 'What does “{QUOTED}” mean?'}}}}]")
    assert read_overflow(400, quoting) == Overflow(4096, 5000)
    assert read_overflow(400, quoting, request) is None


def test_a_number_that_is_none_is_not_read() -> None:
    shares = f"you requested 9000 tokens ({'1' * 5_000} in the messages, 500 in the completion)"
    assert read_overflow(400, said(OPENAI + shares)) == Overflow(8192, None)


def test_a_refusal_stays_one_when_the_request_quotes_another() -> None:
    request = json.dumps({"messages": [{"role": "user", "content": QUOTED}]}).encode()
    assert read_overflow(400, said("prompt is too long: 90 tokens > 80 maximum"), request) == Overflow(80, 90)
    assert read_overflow(400, said(QUOTED, code="context_length_exceeded"), request) is not None


def test_an_answer_that_talks_about_context_windows_is_no_refusal() -> None:
    text = "The maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
    body = json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode()
    assert read_overflow(200, body) is None
    assert read_overflow(200, text.encode()) is None


def test_an_event_with_choices_is_a_refusal_where_it_names_an_error() -> None:
    error = {"message": "prompt is too long: 90 tokens > 80 maximum"}
    assert read_overflow(200, json.dumps({"choices": [], **error}).encode()) is None
    assert read_overflow(200, json.dumps({"choices": [], "error": error}).encode()) == Overflow(80, 90)
