"""One conversation with the real SDK, streaming: what each turn took, and what the proxy said about it.

A family plans a week at the sea. The answers are the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from openai import APIError, APIStatusError, DefaultHttpxClient, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from proxy.cli.demo.children import MODEL
from proxy.cli.terminal import CommandError

_ANSWER_TOKENS = 40
_TIMEOUT = 120.0  # seconds
_REFUSED = 400
_OURS = "x-unabridged-"

SYSTEM = (
    "You help a family to plan a trip. Answer the latest message in one short sentence, and do not repeat "
    "yourself."
)

QUESTIONS = (
    "Hello! We are four people and a dog named Biscuit, and we want to spend one week at the sea in June.",
    "Our budget is 1,800 euros for everything, and we must not fly. Is the train a good idea with a dog?",
    "We live in Kassel. The town we like is called Greifswald. What should we know about going there?",
    "My daughter Ida is nine and loves boats. What could she do on a day with good weather?",
    "My son Jonas is fourteen and reads all day. Which quiet place would you suggest to him?",
    "We eat no fish at home, I am allergic to it. What can I order in a town full of fish restaurants?",
    "The house we found is called Villa Anker and costs 95 euros a night. What does that make for seven?",
    "The landlord asks for a deposit of 150 euros. Is that a usual amount for a holiday house?",
    "We arrive on Saturday, June 14. What should we do on the first evening, when everyone is tired?",
    "Please suggest a walk of about an hour that a small dog can manage without trouble.",
    "It may rain on Monday. Tell me one thing that children like to do indoors.",
    "Ida asks whether she can swim in the Baltic Sea in June. How cold is the water then?",
    "We would like to rent bicycles for one day. What must we look at when we choose them?",
    "Jonas would rather stay in bed until noon. How do we plan a day that suits everybody?",
    "There is a boat to the island of Riems at ten in the morning. How early should we be there?",
    "Biscuit is afraid of loud noise. What helps a dog when there are fireworks in the harbour?",
    "Which three things should I not forget when I pack for the beach?",
    "We have a small tent. Would one night on a camp site be fun, or too much work?",
    "My mother wants a postcard from each trip. What could I write to her in one line?",
    "On Wednesday there is a market in the old town. What is good to buy there for a picnic?",
    "Ida lost a tooth this morning! How do we celebrate that on a holiday?",
    "The weather report speaks of strong wind on Thursday. What is a good plan for such a day?",
    "We thought of a museum with ships and maps. How long do children enjoy a museum?",
    "Jonas asks for a book about the sea. What kind of story would you choose for him?",
    "I want to take photographs at sunrise. When should I get up in the middle of June?",
    "The bakery opens at seven. What breakfast can we make with fresh rolls and little else?",
    "How much water does a small dog need on a warm day?",
    "We spent 640 euros so far. Does that sound like much for half a week?",
    "A friend will visit us on Friday with a baby. What should we cook for everyone?",
    "Remember that I cannot eat fish. Which soup is simple and warm after a day in the wind?",
    "Ida made friends with a girl named Paula. How do they stay in touch after the holiday?",
    "We need a gift for our neighbour, who waters the plants. What do people bring from the sea?",
    "The wheel of a bicycle is flat. What is the first thing to do?",
    "Is it rude to ask the landlord for a second key?",
    "Our train home leaves at 11:40 on Saturday, June 21. When should we clean the house?",
    "Biscuit rolled in seaweed and smells terrible. How do we wash a dog without a bath?",
    "What can four people play together on a rainy evening without any toys?",
    "Jonas wants to see the stars tonight. What do we need for that?",
    "How do we get sand out of a tent and out of shoes?",
    "We have 210 euros left. Should we go out for dinner or save the money?",
    "What would be a good last walk before we leave?",
    "Please suggest one sentence for the guest book of the Villa Anker.",
    "Should we book the same house for next year, or try another place?",
    "What is the name of our dog, and how many people are we?",
)
"""One message a turn; with its answer a turn has some seventy tokens."""


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
            lower = ((name.lower(), value) for name, value in answered.headers.items())
            ours = {name.removeprefix(_OURS): value for name, value in lower if name.startswith(_OURS)}
            yield TurnSeen(number, question, answer, prompt, cached, ours)
