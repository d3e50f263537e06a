"""Bytes that a turn leaves in the store, by the kind of client.

    make bench-storage

A scripted upstream, a Valkey of its own, and clients without a session header: a plain chat, an agent (a
question, three rounds of tools, an answer), one that pastes documents into its last message and drops them
from its history, one that edits its second message after each ten turns and keeps what came after it, and one
that sends only its newest messages. What is told is MEMORY USAGE of every key after the last turn, over the
turns, beside the bytes of the messages that were new.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from tests.support.clients import Chat, proxying, user
from tests.support.stores import Server, run, serving, valkey_command
from tests.support.upstreams import Model, calling, running, said

WORDS = (
    "harbour bridge crane ferry tower market garden library station museum mill orchard quarry pier".split()
)
MODEL = "gpt-4.1"
"""One with a window in which nothing is cut: epochs are no messages."""
ROUNDS = 3
KEPT = 20
"""Messages before the question that a client sends which forgets the others."""
DOCUMENTS = 99_000
"""Characters of them in a message."""


def prose(seed: int, characters: int) -> str:
    """Words of this length together."""
    words = (WORDS[(seed + number * number) % len(WORDS)] for number in range(characters // 5))
    return f"{seed}: " + " ".join(words)[:characters]


async def plain(chat: Chat, model: Model, turn: int) -> None:
    """A question and an answer."""
    model.replies.append(said(prose(turn, 600)))
    await chat.ask(prose(turn + 1, 200))


async def agent(chat: Chat, model: Model, turn: int) -> None:
    """A question, rounds of tools, and an answer."""
    model.replies += [calling((f"{turn}-{each}", "read", prose(each, 60))) for each in range(ROUNDS)]
    model.replies.append(said(prose(turn, 600)))
    await chat.ask(prose(turn + 1, 200))
    for each in range(ROUNDS):
        result = {"role": "tool", "tool_call_id": f"{turn}-{each}", "content": prose(turn + each, 2_000)}
        await chat.say(result)


async def retrieval(chat: Chat, model: Model, turn: int) -> None:
    """A question among documents, of which the question is kept."""
    asked = prose(turn + 1, 200)
    model.replies.append(said(prose(turn, 600)))
    await chat.ask(f"{prose(turn + 2, DOCUMENTS)}\n\nQuestion: {asked}")
    chat.messages[-2] = user(asked)


async def editing(chat: Chat, model: Model, turn: int) -> None:
    """A question among documents that stay, and now and then another third message."""
    if turn and turn % 10 == 0:
        chat.messages[2] = user(prose(turn + 7, 200))
    model.replies.append(said(prose(turn, 600)))
    await chat.ask(f"{prose(turn + 2, 10_000)}\n\nQuestion: {prose(turn + 1, 200)}")


async def newest(chat: Chat, model: Model, turn: int) -> None:
    """A question and an answer, of a client that forgets what was long ago."""
    del chat.messages[:-KEPT]
    await plain(chat, model, turn)


CLIENTS: dict[str, Callable[[Chat, Model, int], Awaitable[None]]] = {
    "plain chat": plain,
    "agent, three tool rounds": agent,
    "retrieval, 99 KB of documents": retrieval,
    "10 KB a message, an early one edited every ten turns": editing,
    "plain chat, the newest 21 messages": newest,
}


def main() -> None:
    """Measure each client, and print the table of the docs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=60)
    turns = parser.parse_args().turns
    logging.disable(logging.CRITICAL)
    print("| client | turns | sessions | new bytes a turn | stored bytes a turn | stored / new |")
    print("|---|---|---|---|---|---|")
    for name in CLIENTS:
        print(asyncio.run(_measure(name, turns)), flush=True)


async def _measure(name: str, turns: int) -> str:
    with serving(valkey_command()) as valkey:
        async with running(Model()) as model, proxying(model.url, store=valkey.url) as url:
            chat, new = Chat(url, members={"model": MODEL}), 0
            for turn in range(turns):
                before = len(chat.messages)
                await CLIENTS[name](chat, model, turn)
                is_pair = CLIENTS[name] is not agent
                messages = [model.views()[-1][-1], chat.messages[-1]] if is_pair else chat.messages[before:]
                new += sum(len(json.dumps(each)) for each in messages)
            await chat.client.aclose()
        sessions: list[bytes] = run(valkey.url, "KEYS", "*:nodes")
        stored = _stored(valkey)
    over = f"{new / turns:,.0f} | {stored / turns:,.0f} | {stored / new:.2f}"
    return f"| {name} | {turns} | {len(sessions)} | {over} |"


def _stored(valkey: Server) -> int:
    names: list[bytes] = run(valkey.url, "KEYS", "*")
    return sum(run(valkey.url, "MEMORY", "USAGE", name, "SAMPLES", 0) for name in names)


if __name__ == "__main__":
    main()
