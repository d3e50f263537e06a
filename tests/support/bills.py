"""A client whose requests are billed as those of a model of known price, and answers with a usage."""

from __future__ import annotations

from tests.support.clients import Chat, Chats
from tests.support.servers import Exchange
from tests.support.upstreams import Behaviour, Message, completion, events, said

FRESH, CACHED, OUTPUT = 2.5e-6, 1.25e-6, 10e-6
"""Dollars for a token of gpt-4o."""


def using(used: Message, message: Message | None = None, *, stream: bool = False) -> Behaviour:
    """An answer with this usage."""
    told = message or said("So it is.")

    async def answer(exchange: Exchange) -> None:
        if stream:
            chunks = events(told, prompt=0)
            await exchange.stream_events([*chunks[:-1], chunks[-1] | {"usage": used}])
        else:
            await exchange.answer_json(completion(told) | {"usage": used})

    return answer


def usage(prompt: int, output: int, **details: int) -> Message:
    return {"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": details}


def talker(chats: Chats, url: str, model: str = "gpt-4o", session: str = "s") -> Chat:
    chat = chats(url, X_Unabridged_Session=session)
    chat.members = {"model": model}
    return chat
