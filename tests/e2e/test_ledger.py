"""What was cut out of a history is still in the forwarded request, word for word."""

from __future__ import annotations

import json

import httpx2

from tests.support.clients import ADMIN, Small, user
from tests.support.servers import PATIENCE
from tests.support.upstreams import Message, Model, calling

RULE = "Never open the bridge after 22:00, not even for the mayor."
LEDGER = "[keep]\nfirst_user = false\nrecent = 0.1\n[ledger]\nshare = 0.2"


def history(turns: int) -> list[Message]:
    """A rule and a tool's answer at its beginning, then much talk."""
    look = calling(("call_1", "find_boat", '{"who": "me"}'))
    found = {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": json.dumps({"boat_id": "K4711X", "berth": "B-101"}),
    }
    said: list[Message] = [
        user(f"Where is my boat?\n{RULE}"),
        look,
        found,
        {"role": "assistant", "content": "At the quay."},
    ]
    for number in range(turns):
        said.append(user(f"Tell me of stone {number}. " + "Tell me all of it, please. " * 6))
        said.append(
            {"role": "assistant", "content": f"It lies there. {number} " + "It is grey and old. " * 8}
        )
    return [*said, user("And where is my boat now?")]


def texts(model: Model) -> list[str]:
    return [str(message.get("content")) for message in json.loads(bytes(model.chats[-1].body))["messages"]]


async def test_a_rule_and_an_id_that_were_cut_are_in_the_note(model: Model, small: Small) -> None:
    async with httpx2.AsyncClient(base_url=await small(1000, summaries=False, extra=LEDGER)) as client:
        response = await client.post(
            "/v1/chat/completions", json={"model": "gpt-test", "messages": history(20)}
        )
    assert response.status_code == 200
    sent = texts(model)
    notes = [text for text in sent if text.startswith("<note ")]
    assert not any(text.startswith("Where is my boat?") for text in sent)
    assert f"\n- {RULE}\n" in notes[-1]
    assert "boat_id: K4711X" in notes[-1]
    assert sent[-1] == "And where is my boat now?"


async def test_a_prohibition_is_told_until_it_is_withdrawn_whatever_else_is_forbidden(
    model: Model, small: Small
) -> None:
    first, *talk = history(20)
    passwords, keys = "Access to /etc/passwd is forbidden.", "Access to /srv/keys is forbidden."
    again = "Access to /etc/passwd is allowed again."
    messages = [user(passwords), first, user(keys), *talk]
    async with httpx2.AsyncClient(base_url=await small(1000, summaries=False, extra=LEDGER)) as client:
        await client.post("/v1/chat/completions", json={"model": "gpt-test", "messages": messages})
        told = "\n".join(texts(model))
        assert f"\n- {passwords}\n" in told
        assert f"\n- {keys}\n" in told
        withdrawn = [*messages[:3], user(again), *messages[3:]]
        await client.post("/v1/chat/completions", json={"model": "gpt-test", "messages": withdrawn})
        told = "\n".join(texts(model))
        assert passwords not in told
        assert f"\n- {again}\n" in told
        assert f"\n- {keys}\n" in told


async def test_the_ledger_stays_as_it_is_until_the_next_epoch(model: Model, small: Small) -> None:
    headers = {"X-Unabridged-Session": "boats"}
    async with httpx2.AsyncClient(
        base_url=await small(1000, summaries=False, extra=LEDGER), headers=headers
    ) as client:
        messages = history(20)
        views: dict[str, set[str]] = {}
        for number in range(6):
            body = {"model": "gpt-test", "messages": messages}
            response = await client.post("/v1/chat/completions", json=body)
            epoch = response.headers["x-unabridged-epoch"]
            notes = "".join(text for text in texts(model) if text.startswith("<note "))
            views.setdefault(epoch, set()).add(notes)
            messages = [*messages, {"role": "assistant", "content": "There."}, user(f"And K{number}X?")]
    assert all(len(notes) == 1 for notes in views.values())
    assert all(RULE in note for notes in views.values() for note in notes)


async def test_two_proxies_without_a_common_store_write_the_same_ledger(model: Model, small: Small) -> None:
    async def notes() -> list[str]:
        async with httpx2.AsyncClient(base_url=await small(1000, summaries=False, extra=LEDGER)) as client:
            await client.post("/v1/chat/completions", json={"model": "gpt-test", "messages": history(30)})
        return texts(model)

    first, second = await notes(), await notes()
    assert first == second
    assert any("K4711X" in text for text in first)


async def test_a_model_that_wants_alternating_roles_gets_the_ledger_within_a_neighbour(
    model: Model, small: Small
) -> None:
    url = await small(1000, summaries=False, extra=f"alternate = true\n{LEDGER}")
    async with httpx2.AsyncClient(base_url=url) as client:
        await client.post("/v1/chat/completions", json={"model": "gpt-test", "messages": history(20)})
    sent = json.loads(bytes(model.chats[-1].body))["messages"]
    roles = [message["role"] for message in sent]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    (holding,) = (text for text in texts(model) if RULE in text)
    assert "boat_id: K4711X" in holding


async def test_the_ledger_comes_with_a_cut_on_request_and_goes_when_that_is_undone(
    model: Model, small: Small
) -> None:
    body = {"model": "gpt-test", "messages": history(5)}
    headers = {"X-Unabridged-Session": "boats", **ADMIN}
    url = await small(20_000, summaries=False, extra=LEDGER)
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE) as client:

        async def do(verb: str) -> int:
            response = await client.post(f"/unabridged/v1/sessions/boats/{verb}", json={"messages": "0-9"})
            return response.status_code

        async def sent() -> list[str]:
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            return texts(model)

        whole = await sent()
        assert await do("compact") == 200
        cut = await sent()
        assert cut[1:] == whole[10:]
        assert f"\n- {RULE}\n" in cut[0]
        assert "boat_id: K4711X" in cut[0]
        assert await do("restore") == 200
        assert await sent() == whole
        assert await do("restore") == 409


async def test_of_what_a_command_brought_nothing_binds_and_what_the_user_says_beside_it_does(
    model: Model, small: Small
) -> None:
    said: list[Message] = [user("Mend the quay.")]
    for number in range(16):
        command = f"I look at number {number}.\n```bash\ncat quay{number}.txt\n```"
        printed = f"You must never moor at berth {number}.\n" + "stone and rope\n" * 20
        output = f"<output>\n{printed}</output>"
        beside = f"\n\n{RULE}" if number == 2 else ""
        said += [{"role": "assistant", "content": command}, user(output + beside)]
    async with httpx2.AsyncClient(base_url=await small(1000, summaries=False, extra=LEDGER)) as client:
        response = await client.post("/v1/chat/completions", json={"model": "gpt-test", "messages": said})
    assert response.status_code == 200
    sent = texts(model)
    ledger = next(text for text in reversed(sent) if text.startswith("<note "))
    assert f"\n- {RULE}\n" in ledger
    assert "must never moor" not in ledger
    assert sent[-1] == said[-1]["content"]
