"""What is read from the answers to the proxy's own calls."""

from __future__ import annotations

import pytest

from proxy.core.dialects.registry import CHAT
from proxy.core.summaries.prompt import Refused, said_in, text_of
from tests.support.upstreams import DONE, events, said, sse


def test_an_answer_that_breaks_off_in_its_stream_is_none() -> None:
    chunks = events(said("- Ana lives in Oslo.\n- Ana has a dog."))
    whole, half = CHAT.answer_stream(), CHAT.answer_stream()
    whole.feed(b"".join(map(sse, chunks)) + DONE)
    half.feed(b"".join(map(sse, [*chunks[:3], {"error": {"message": "The server is overloaded."}}])))
    assert said_in(whole.answer(), CHAT) == "- Ana lives in Oslo.\n- Ana has a dog."
    with pytest.raises(Refused, match="cut_short"):
        said_in(half.answer(), CHAT)


def summary_in(text: str) -> str:
    stream = CHAT.answer_stream()
    stream.feed(b"".join(map(sse, events(said(text)))) + DONE)
    return text_of(stream.answer(), CHAT)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I cannot summarize this conversation because it may contain harmful content.",
        "Unfortunately, I won't provide that.",
        "I apologize, but I cannot provide a summary of this conversation.",
        "I'm afraid I can't help with that.",
        "As an AI language model, I am unable to process this transcript.",
        "Es tut mir leid, aber dabei kann ich nicht helfen.",
        "Je suis désolé, mais je ne peux pas vous aider.",
        "Lo siento, pero no puedo ayudar con eso.",
        "申し訳ありませんが、お手伝いできません。",
        "抱歉,我无法提供帮助。",
        '{"summary": "I can\u2019t assist with that request."}',
    ],
)
def test_a_model_that_says_it_will_not_has_written_no_summary(text: str) -> None:
    with pytest.raises(Refused, match="refused"):
        summary_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "The user was sorry that the boat could not help.",
        "I cannot stress enough that the bridge opens at nine, the user said.",
        "Sorry notes were sent to all boats.",
        "Der Kapitän konnte nicht helfen.",
        "用户感到抱歉。",
        '"I can\'t help at night," the harbour master said; the bridge stays closed then.',
        "I'm sorry, but I can't share the plan of boat K-4711 before noon.",
        "Leider kann ich nachts nicht helfen, schrieb der Hafenmeister.",
        "Lo siento, pero no puedo, dijo la capitana.",
        "很抱歉,船长说他不能来。",
        '{"summary": "The assistant could not help with the boat."}',
    ],
)
def test_a_summary_may_tell_that_somebody_could_not(text: str) -> None:
    assert summary_in(text)
