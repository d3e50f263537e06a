"""One conversation with the real SDK, streaming: what each turn took, and what the proxy said about it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from openai import APIError, APIStatusError, DefaultHttpxClient, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from proxy.cli.demo.model_server import MODEL
from proxy.cli.demo.script import SYSTEM
from proxy.cli.terminal import CommandError

_ANSWER_TOKENS = 40
_TIMEOUT = 120.0  # seconds
_REFUSED = 400
_OURS = "x-unabridged-"


@dataclass(frozen=True)
class TurnSeen:
    """One turn, as a client sees it. Tokens are zero where nobody told them."""

    number: int
    question: str
    answer: str
    prompt_tokens: int
    """Of what the model got, by its own count."""
    cached_tokens: int
    """Of these, those that it had in its cache."""
    headers: Mapping[str, str]
    """`X-Unabridged-…`, by the rest of the name, in lower case; empty without the proxy."""

    @property
    def stage(self) -> str:
        return self.headers.get("stage", "")

    @property
    def epoch(self) -> str:
        return self.headers.get("epoch", "")

    def tokens(self, kind: str) -> int:
        """`sent`, `full` or `budget`, as the proxy counts them."""
        pairs = (part.strip().partition("=") for part in self.headers.get("tokens", "").split(";"))
        return next((int(value) for name, _, value in pairs if name == kind and value.isdigit()), 0)

    @property
    def usage(self) -> float:
        """What was sent, over the budget."""
        budget = self.tokens("budget")
        return self.tokens("sent") / budget if budget else 0.0


@dataclass(frozen=True)
class Refusal:
    """The turn at which the model would not go on."""

    number: int
    question: str
    message: str


def converse(
    base_url: str, questions: Sequence[str], on_text: Callable[[str, str], None]
) -> Generator[TurnSeen | Refusal]:
    """A turn for each question, up to a refusal. Raises CommandError.

    The client keeps its whole history and re-sends it, as SDKs do; nothing in it knows of a proxy. `on_text`
    gets the question and the answer so far.
    """
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": SYSTEM}]
    http = DefaultHttpxClient(trust_env=False)  # no outbound proxy leads to this machine
    with OpenAI(
        base_url=base_url, api_key="not-needed", max_retries=0, timeout=_TIMEOUT, http_client=http
    ) as client:
        for number, question in enumerate(questions, 1):
            messages.append({"role": "user", "content": question})
            answer, usage = "", None
            try:
                answered = client.chat.completions.with_raw_response.create(
                    model=MODEL,
                    messages=messages,
                    max_tokens=_ANSWER_TOKENS,
                    temperature=0.6,
                    top_p=0.9,
                    frequency_penalty=1.5,  # so small a model repeats itself otherwise
                    seed=number,
                    stream=True,
                    stream_options={"include_usage": True},
                )
                with answered.parse() as events:
                    for event in events:
                        usage = event.usage or usage
                        answer += "".join(choice.delta.content or "" for choice in event.choices)
                        on_text(question, answer)
            except APIError as error:
                if not isinstance(error, APIStatusError) or error.status_code != _REFUSED:
                    raise CommandError(f"turn {number} failed: {error}") from error
                yield Refusal(number, question, error.message)
                return
            messages.append({"role": "assistant", "content": answer})
            prompt, details = (usage.prompt_tokens, usage.prompt_tokens_details) if usage else (0, None)
            cached = (details.cached_tokens if details else 0) or 0
            yield TurnSeen(number, question, answer, prompt, cached, _ours(answered.headers))


def _ours(headers: Mapping[str, str]) -> dict[str, str]:
    lower = ((name.lower(), value) for name, value in headers.items())
    return {name.removeprefix(_OURS): value for name, value in lower if name.startswith(_OURS)}
