"""`budget.bytes`: an upstream that refuses bodies by their size, and tokens to spare."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.clients import Chat, proxying, question, told, user, write_policy
from tests.support.servers import Exchange, FakeUpstream
from tests.support.upstreams import JSON, Message, Model

MOST = 8_000
NO_LEDGER = "[ledger]\nconstraints = false\nidentifiers = false\n"
POLICY = """
extends = "default"
[budget]
tokens = 1_000_000
bytes = {most}
[summary]
enabled = false
"""


@asynccontextmanager
async def chatting(
    directory: Path, most: int, taken: int = MOST, extra: str = ""
) -> AsyncGenerator[tuple[Chat, Model]]:
    """A client, a policy of at most ``most`` bytes, and an upstream that refuses bodies over ``taken``."""
    model = Model()

    async def serve_one(exchange: Exchange) -> None:
        if int(exchange.request.value("content-length") or b"0") <= taken:
            await model.serve_one(exchange)
            return
        await exchange.body()
        await exchange.answer(413, [JSON], b'{"error": {"message": "Request Entity Too Large"}}')

    policy = write_policy(directory, "ceiling", POLICY.format(most=most) + extra)
    async with (
        FakeUpstream(serve_one).serve() as upstream,
        proxying(f"{upstream.url}/v1", policy=str(policy)) as url,
    ):
        chat = Chat(url)
        async with chat.client:
            yield chat, model


async def test_a_conversation_outgrows_what_the_upstream_takes_in_bytes(tmp_path: Path) -> None:
    async with chatting(tmp_path, MOST) as (chat, model):
        for number in range(60):
            assert (await chat.ask(question(number))).status_code == 200
        assert len(model.chats) == 60
        assert max(len(each.body) for each in model.chats) <= MOST
        assert chat.stages[0] == "calm"
        assert {"warn", "trim"} <= set(chat.stages)


async def test_without_a_ceiling_the_same_conversation_is_refused(tmp_path: Path) -> None:
    async with chatting(tmp_path, 0) as (chat, _):
        answers = [(await chat.ask(question(number))).status_code for number in range(60)]
        assert 413 in answers


async def test_what_was_cut_for_its_bytes_stays_cut_between_two_epochs(tmp_path: Path) -> None:
    async with chatting(tmp_path, MOST) as (chat, _):
        epochs = [int(told(await chat.ask(question(number)), "epoch")) for number in range(60)]
        assert epochs == sorted(epochs)
        assert 2 <= epochs[-1] <= 12


async def test_what_is_handed_in_counts_against_the_ceiling_too(tmp_path: Path) -> None:
    async with chatting(tmp_path, MOST) as (chat, model):
        chat.members["unabridged"] = {"inject": {"text": "What was said before. " * 100}}
        for number in range(30):
            assert (await chat.ask(question(number))).status_code == 200
        assert all(b"What was said before." in each.body for each in model.chats)
        assert max(len(each.body) for each in model.chats) <= MOST


async def test_old_images_go_for_their_bytes_and_the_words_beside_them_stay(tmp_path: Path) -> None:
    most = 200_000
    async with chatting(tmp_path, most, most, NO_LEDGER) as (chat, model):
        for number in range(24):
            asked = [{"type": "text", "text": question(number)}, picture(number)]
            assert (await chat.say({"role": "user", "content": asked})).status_code == 200
        last = model.views()[-1]
        assert picture(23) in last[-1]["content"]
        assert all(question(number) in str(last) for number in range(24))
        assert str(last).count("image, cleared") >= 5


async def test_a_body_that_is_too_large_at_first_is_cut_at_once(tmp_path: Path) -> None:
    async with chatting(tmp_path, MOST) as (chat, model):
        for number in range(60):
            chat.messages += [user(question(number)), {"role": "assistant", "content": "So it is. " * 20}]
        response = await chat.ask("And now?")
        assert response.status_code == 200
        assert told(response, "stage") == "emergency"
        assert len(model.chats[-1].body) <= MOST


def picture(number: int) -> Message:
    """Ten kilobytes, of a few tokens."""
    data = base64.b64encode(bytes([number]) * 7_500).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": "low"}}
