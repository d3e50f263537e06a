"""What is read from the answers to the proxy's own calls."""

from __future__ import annotations

import pytest

from proxy.core.dialects.registry import CHAT
from proxy.core.summaries.prompt import Refused, said_in
from tests.support.upstreams import DONE, events, said, sse


def test_an_answer_that_breaks_off_in_its_stream_is_none() -> None:
    chunks = events(said("- Ana lives in Oslo.\n- Ana has a dog."))
    whole, half = CHAT.answer_stream(), CHAT.answer_stream()
    whole.feed(b"".join(map(sse, chunks)) + DONE)
    half.feed(b"".join(map(sse, [*chunks[:3], {"error": {"message": "The server is overloaded."}}])))
    assert said_in(whole.answer(), CHAT) == "- Ana lives in Oslo.\n- Ana has a dog."
    with pytest.raises(Refused, match="cut_short"):
        said_in(half.answer(), CHAT)
