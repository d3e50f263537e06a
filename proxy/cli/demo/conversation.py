"""One conversation, held by three clients that differ only in what they do once the window is full.

A family plans a week at the sea. Early on they give a booking code and forbid something; at the end they ask
for both. The answers are the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from openai import APIError, APIStatusError, DefaultHttpxClient, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from proxy.cli.demo.children import MODEL
from proxy.cli.terminal import CommandError

_ANSWER_TOKENS = 24
_TIMEOUT = 120.0  # seconds
_OURS = "x-unabridged-"

CODE, FORBIDDEN = "KX7-4193", "boat trip"
"""The code and the forbidden thing, which the second message states and the last ones ask for."""
SYSTEM = "You help a family to plan a trip. Answer in one short sentence."
TALK = (
    "Hello! We are four people and a dog named Biscuit, and we want a week at the sea in June.",
    f"Our booking code is {CODE}. Never suggest a {FORBIDDEN}: Ida gets seasick.",
    "Our budget is 1,800 euros for everything. Is the train a good idea with a dog?",
    "We live in Kassel, and the town we like is Greifswald. What should we know about it?",
    "My son Jonas is fourteen and reads all day. Which quiet place would you suggest to him?",
    "The house is called Villa Anker and costs 95 euros a night. Is that a fair price?",
    "We arrive on Saturday, June 14. What should we do on the first evening?",
    "Please suggest a walk of about an hour that a small dog can manage.",
    "It may rain on Monday. What do children like to do indoors?",
    "We would like to rent bicycles for one day. What must we look at when we choose them?",
    "Biscuit is afraid of loud noise. What helps a dog when there are fireworks?",
    "Which three things should I not forget when I pack for the beach?",
    "My mother wants a postcard from each trip. What could I write to her?",
    "How much water does a small dog need on a warm day?",
    "On Wednesday there is a market in the old town. What is good for a picnic?",
    "Our train home leaves at 11:40 on Saturday, June 21. When should we clean the house?",
)
QUESTIONS = (
    "What is our booking code? Repeat it exactly.",
    "What did I ask you never to suggest to us?",
)
"""One message per turn; with its answer, a turn has about sixty tokens."""


@dataclass(frozen=True)
class TurnSeen:
    """One turn, as a client sees it. Tokens are zero if they were not reported."""

    number: int
    question: str
    answer: str
    prompt_tokens: int
    """Tokens of the prompt, by the model's own count."""
    cached_tokens: int
    """Tokens of the prompt that the model had cached."""
    forgotten: int
    """Number of messages that the client has dropped so far."""
    headers: Mapping[str, str]
    """The headers `X-Unabridged-…` by the rest of their names in lower case; empty without the proxy."""

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
        """The tokens that were sent, relative to the budget."""
        budget = self.tokens("budget")
        return self.tokens("sent") / budget if budget else 0.0


@dataclass(frozen=True)
class Refusal:
    """The turn that the model refused."""

    number: int
    question: str
    message: str


@dataclass
class Client:
    """A client that re-sends its whole history, as SDKs do; it does not know of the proxy.

    One that ``forgets`` drops its oldest exchange, and the next, until the model takes the rest.
    """

    base_url: str
    forgets: bool = False
    messages: list[ChatCompletionMessageParam] = field(
        default_factory=lambda: [{"role": "system", "content": SYSTEM}]
    )
    turns: list[TurnSeen] = field(default_factory=list[TurnSeen])
    refusal: Refusal | None = None
    _forgotten: int = 0

    def __post_init__(self) -> None:
        http = DefaultHttpxClient(trust_env=False)  # no outbound proxy leads to this machine
        self._sdk = OpenAI(
            base_url=self.base_url, api_key="not-needed", max_retries=0, timeout=_TIMEOUT, http_client=http
        )

    def close(self) -> None:
        self._sdk.close()

    def ask(self, question: str, on_text: Callable[[str], object] = lambda _: None) -> TurnSeen | Refusal:
        """Make one turn; none follows a refusal. `on_text` gets the answer so far. Raises CommandError."""
        number = len(self.turns) + 1
        self.messages.append({"role": "user", "content": question})
        while True:
            try:
                turn = self._answered(number, question, on_text)
            except APIError as error:
                is_refused = isinstance(error, APIStatusError) and error.status_code == HTTPStatus.BAD_REQUEST
                if is_refused and self.forgets and len(self.messages) > 3:
                    del self.messages[1:3]
                    self._forgotten += 2
                    continue
                if not is_refused:
                    raise CommandError(f"turn {number} failed: {error}") from error
                self.refusal = Refusal(number, question, error.message)
                return self.refusal
            self.messages.append({"role": "assistant", "content": turn.answer})
            self.turns.append(turn)
            return turn

    def _answered(self, number: int, question: str, on_text: Callable[[str], object]) -> TurnSeen:
        """Return the model's answer to the messages. Raises APIError."""
        answered = self._sdk.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=self.messages,
            max_tokens=_ANSWER_TOKENS,
            temperature=0.6,
            top_p=0.9,
            frequency_penalty=1.5,  # so small a model repeats itself otherwise
            seed=number,
            stream=True,
            stream_options={"include_usage": True},
        )
        answer, usage = "", None
        with answered.parse() as events:
            for event in events:
                usage = event.usage or usage
                answer += "".join(choice.delta.content or "" for choice in event.choices)
                on_text(answer)
        prompt, details = (usage.prompt_tokens, usage.prompt_tokens_details) if usage else (0, None)
        cached = (details.cached_tokens if details else 0) or 0
        lower = ((name.lower(), value) for name, value in answered.headers.items())
        ours = {name.removeprefix(_OURS): value for name, value in lower if name.startswith(_OURS)}
        return TurnSeen(number, question, answer, prompt, cached, self._forgotten, ours)


def says(messages: Sequence[Mapping[str, object]], text: str) -> bool:
    """Whether messages contain a text, not counting the model's own words."""
    return any(text in str(each.get("content")) for each in messages if each.get("role") != "assistant")
