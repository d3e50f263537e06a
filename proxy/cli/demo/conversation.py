"""One conversation with the real SDK, streaming: what each turn took, and what the proxy said about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2
from openai import APIStatusError, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from proxy.cli.demo.children import Proxy
from proxy.cli.demo.model_server import MODEL
from proxy.cli.demo.script import SYSTEM

ANSWER_TOKENS = 40
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
        return self.tokens("sent") / max(self.tokens("budget"), 1)


@dataclass(frozen=True)
class Refusal:
    """The turn at which the model would not go on."""

    number: int
    question: str
    message: str


class Conversation:
    """A client that keeps its whole history and re-sends it, as SDKs do; nothing in it knows of a proxy."""

    def __init__(self, base_url: str) -> None:
        self._client = OpenAI(base_url=base_url, api_key="not-needed", max_retries=0, timeout=_TIMEOUT)
        self._messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": SYSTEM}]
        self.turns = 0

    def ask(self, question: str, on_text: Callable[[str], None] = lambda _: None) -> TurnSeen | Refusal:
        """One turn; `on_text` gets the answer so far as it arrives. Raises openai's errors but refusals."""
        self._messages.append({"role": "user", "content": question})
        self.turns += 1
        try:
            return self._stream(question, on_text)
        except APIStatusError as error:
            if error.status_code != _REFUSED:
                raise
            return Refusal(self.turns, question, error.message)

    def _stream(self, question: str, on_text: Callable[[str], None]) -> TurnSeen:
        answered = self._client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=self._messages,
            max_tokens=ANSWER_TOKENS,
            temperature=0.6,
            top_p=0.9,
            frequency_penalty=1.5,  # so small a model repeats itself otherwise
            seed=self.turns,
            stream=True,
            stream_options={"include_usage": True},
        )
        answer, usage = "", None
        with answered.parse() as events:
            for event in events:
                usage = event.usage or usage
                answer += "".join(choice.delta.content or "" for choice in event.choices)
                on_text(answer)
        self._messages.append({"role": "assistant", "content": answer})
        details = usage.prompt_tokens_details if usage else None
        return TurnSeen(
            number=self.turns,
            question=question,
            answer=answer,
            prompt_tokens=usage.prompt_tokens if usage else 0,
            cached_tokens=(details.cached_tokens if details else 0) or 0,
            headers=_ours(answered.headers),
        )

    def close(self) -> None:
        """Give connections back."""
        self._client.close()


def _ours(headers: Mapping[str, str]) -> dict[str, str]:
    lower = ((name.lower(), value) for name, value in headers.items())
    return {name.removeprefix(_OURS): value for name, value in lower if name.startswith(_OURS)}


class Onlooker:
    """Looks into the proxy from beside: its admin API and its metrics."""

    def __init__(self, proxy: Proxy) -> None:
        self._client = httpx2.Client(
            base_url=proxy.server, headers={"Authorization": f"Bearer {proxy.token}"}, timeout=10
        )

    def close(self) -> None:
        """Give connections back."""
        self._client.close()

    def summaries(self) -> int:
        """How many summaries have been written, or given up."""
        lines = self._client.get("/metrics").text.splitlines()
        counted = (line for line in lines if line.startswith("unabridged_summaries_total{"))
        return sum(int(float(line.rpartition(" ")[2])) for line in counted)

    def summary(self) -> str:
        """What the view of the newest session has in place of messages; empty where there is no summary."""
        sessions: list[dict[str, Any]] = self._get("/sessions?limit=1")["sessions"]
        if not sessions:
            return ""
        view = self._get(f"/sessions/{quote(sessions[0]['id'], safe='')}/view")
        texts = (str(message.get("content")) for message in view["messages"])
        lines = (line for text in texts for line in text.splitlines() if line.startswith("Summary of"))
        return "\n".join(lines)

    def _get(self, path: str) -> Any:
        return self._client.get(f"/unabridged/v1{path}").raise_for_status().json()
