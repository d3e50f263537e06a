"""Windows that the upstream states: in its list of models, or where local servers tell of themselves."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from tests.support.canaries import logged
from tests.support.clients import (
    Chats,
    proxying,
    question,
    tokens_of,
    user,
    window_from,
)
from tests.support.servers import PATIENCE, Exchange, Received, eventually
from tests.support.upstreams import (
    JSON,
    Behaviour,
    Message,
    Model,
    count_tokens,
    in_pieces,
    plainly,
    running,
)

# --- the upstream's own list ---

LISTED: dict[str, Message] = {
    "OpenRouter": {"id": "gpt-test", "context_length": 1000, "top_provider": {"context_length": 900}},
    "vLLM": {"id": "gpt-test", "object": "model", "owned_by": "vllm", "max_model_len": 1000},
    "llama.cpp": {"id": "gpt-test", "meta": {"n_ctx_train": 131_072, "n_ctx": 1000, "n_vocab": 128_256}},
    "Groq": {"id": "gpt-test", "context_window": 1000, "max_completion_tokens": 32_768},
    "LiteLLM": {"id": "gpt-test", "max_input_tokens": 1000, "max_output_tokens": 4096},
    "LiteLLM, before a larger window": {"id": "gpt-test", "max_input_tokens": 1000, "context_length": 9000},
    "DeepInfra": {"id": "gpt-test", "metadata": {"context_length": 1000, "max_tokens": 1000}},
    "a number as text": {"id": "gpt-test", "context_length": "1000"},
    "a name with a prefix": {"id": "models/gpt-test", "context_length": 1000},
}


@pytest.mark.parametrize("server", LISTED)
async def test_an_upstream_that_lists_its_window_is_never_overrun_from_the_second_request_on(
    chats: Chats, server: str
) -> None:
    model = Model(window=1000, listing={"object": "list", "data": [{"id": "other"}, LISTED[server]]})
    async with running(model), proxying(model.url) as url:
        async with asyncio.timeout(PATIENCE):
            while "budget" not in tokens_of(await chats(url).ask("Hello")):
                pass
        chat = chats(url)
        for number in range(30):
            chat.messages += [user(question(number)), {"role": "assistant", "content": "It is done."}]
        for number in range(30, 40):
            assert (await chat.ask(question(number))).status_code == 200
    assert (model.refused, len(model.others)) == (0, 1)


async def test_a_busy_moment_of_a_server_whose_requests_share_a_cache_prunes_no_other_request(
    model: Model, chats: Chats, url: str
) -> None:
    """llama.cpp refuses all requests that it is answering, once they fill its cache together."""
    model.listing = {"data": [{"id": "gpt-test", "meta": {"n_ctx": 32_768}}]}
    chat = chats(url)
    async with asyncio.timeout(PATIENCE):
        while tokens_of(await chat.ask("Hello")).get("window") != 32_768:
            pass
    for number in range(20):
        chat.messages += [user(question(number)), {"role": "assistant", "content": "It is done."}]
    await chat.ask(question(20))
    said = {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}
    model.replies.append(plainly(500, [JSON], json.dumps(said).encode()))
    response = await chat.ask(question(21))
    assert (response.status_code, window_from(response)) == (200, "refusal")
    assert count_tokens(model.bodies()[-1]) < count_tokens(model.bodies()[-2])
    other = chats(url, X_Unabridged_Session="other")
    other.messages = list(chat.messages)
    for each in (chat, other):
        response = await each.ask(question(22))
        assert (tokens_of(response)["window"], window_from(response)) == (32_768, "upstream")
    assert model.views()[-1] == other.messages[:-1]


@dataclass
class ListingModel(Model):
    """A model whose list is answered by a script."""

    lists: Behaviour = field(kw_only=True)

    async def serve_one(self, exchange: Exchange) -> None:
        if exchange.request.method == "GET":
            self.others.append(exchange.request)
            await self.lists(exchange)
        else:
            await super().serve_one(exchange)


LISTS: dict[str, Behaviour] = {
    "an error": plainly(500, [JSON], b'{"error": "no"}'),
    "forbidden": plainly(401, [JSON], b'{"data": [{"id": "gpt-test", "context_length": 300}]}'),
    "HTML": plainly(200, [(b"Content-Type", b"text/html")], b"<html>Not found</html>"),
    "huge": plainly(200, [JSON], b'{"data": [' + b'{"id": "x"},' * 300_000),
    "garbage": plainly(200, [JSON], b"\xff\x00"),
    "cut off": in_pieces(b'{"data": [', headers=[JSON], end=False),
    "odd": plainly(
        200,
        [JSON],
        b'{"data": [null, 1, [], {"id": 5, "context_length": 9000}, {"id": "gpt-test", "context_length": "4k"'
        b', "max_model_len": true, "meta": []}, {"id": "gpt-test", "context_length": 1}]}',
    ),
}


async def test_model_lists_that_cannot_be_had_cost_nothing(chats: Chats) -> None:
    async def lists(exchange: Exchange) -> None:
        caller = exchange.request.value("authorization") or b""
        await LISTS[caller.decode().removeprefix("Bearer ")](exchange)

    def lists_asked_for() -> list[Received]:
        return [request for request in model.others if request.target == "/v1/models"]

    model = ListingModel(lists=lists)
    async with running(model), proxying(model.url) as url:
        for asked, how in enumerate(LISTS, 1):
            chat = chats(url, Authorization=f"Bearer {how}")
            chat.members["model"] = how
            responses = [await chat.ask("Hello") for _ in range(3)]
            await eventually(lambda asked=asked: len(lists_asked_for()) == asked)
            responses.append(await chat.ask("Hello"))
            told = {(response.status_code, tokens_of(response).get("budget")) for response in responses}
            assert told == {(200, None)}, how
    assert len(lists_asked_for()) == len(LISTS), "none is asked for again and again"


async def test_a_model_list_that_never_comes_keeps_nobody_waiting(chats: Chats) -> None:
    answered = asyncio.Event()

    async def hangs(exchange: Exchange) -> None:
        await answered.wait()
        await exchange.answer_json({"data": []})

    model = ListingModel(lists=hangs)
    async with running(model), proxying(model.url) as url:
        chat = chats(url)
        statuses = [(await chat.ask("Hello")).status_code for _ in range(3)]
        assert (statuses, len(model.others)) == ([200, 200, 200], 1)
        answered.set()


async def test_a_caller_who_may_not_see_the_list_keeps_nobody_from_it(chats: Chats) -> None:
    async def guarded(exchange: Exchange) -> None:
        if exchange.request.value("authorization") == b"Bearer good":
            await exchange.answer_json({"data": [{"id": "gpt-test", "context_length": 32_000}]})
        else:
            await exchange.answer_json({"error": {"message": "no"}}, 401)

    model = ListingModel(lists=guarded)
    async with running(model), proxying(model.url) as url:
        await chats(url, Authorization="Bearer bad").ask("Hello")
        good = chats(url, Authorization="Bearer good")
        await good.ask("Hello")
        async with asyncio.timeout(PATIENCE):
            while tokens_of(await good.ask("Hello")).get("budget") != 28_000:
                pass


# --- what local servers say of themselves ---

OLLAMA_PS = {"models": [{"name": "gpt-test:latest", "model": "gpt-test:latest", "size": 6_591_830_464,
                         "details": {"family": "gemma3"}, "expires_at": "2026-11-23T12:00:00Z",
                         "size_vram": 5_333_539_264, "context_length": 4096}]}  # fmt: skip
OLLAMA_SHOW = {"parameters": 'num_ctx                        4096\nstop                           "<|end|>"',
               "template": "{{ .Prompt }}", "details": {"family": "gemma3"},
               "model_info": {"general.architecture": "gemma3", "gemma3.context_length": 131_072},
               "capabilities": ["completion"]}  # fmt: skip
PROPS = {"default_generation_settings": {"id": 0, "n_ctx": 4096, "params": {"n_predict": -1}},
         "total_slots": 1, "model_path": "/models/m.gguf"}  # fmt: skip
LM_STUDIO = {"object": "list", "data": [
    {"id": "other", "object": "model", "state": "not-loaded", "max_context_length": 32_768},
    {"id": "gpt-test", "object": "model", "type": "llm", "arch": "llama", "state": "loaded",
     "max_context_length": 131_072, "loaded_context_length": 4096}]}  # fmt: skip
LOCAL: dict[str, dict[str, object]] = {
    "Ollama, running": {"/api/ps": OLLAMA_PS},
    "Ollama, not running yet": {"/api/ps": {"models": []}, "/api/show": OLLAMA_SHOW},
    "llama.cpp": {"/props": PROPS},
    "LM Studio": {"/api/v0/models": LM_STUDIO},
    "Mistral": {"/v1/models": {"data": [{"id": "gpt-test", "max_context_length": 4096}]}},
    "Together": {"/v1/models": [{"id": "other"}, {"id": "gpt-test", "context_length": 4096}]},
}


def local_server(model: Model, places: dict[str, object]) -> None:
    """Other places answer 404, as the real ones do."""
    model.listing = {"object": "list", "data": [{"id": "gpt-test", "object": "model", "owned_by": "library"}]}
    missing = plainly(404, [JSON], b'{"error": "not found"}')
    for place in ("/api/ps", "/api/show", "/props", "/api/v0/models"):
        model.elsewhere[place] = missing
    for place, answer in places.items():
        model.elsewhere[place] = plainly(200, [JSON], json.dumps(answer).encode())


@pytest.mark.parametrize("server", LOCAL)
async def test_a_local_server_is_asked_for_the_context_that_it_runs_with(
    model: Model, chats: Chats, url: str, server: str
) -> None:
    local_server(model, LOCAL[server])
    chat = chats(url)
    async with asyncio.timeout(PATIENCE):
        while "window" not in tokens_of(response := await chat.ask("Hello")):
            pass
    assert (tokens_of(response)["window"], window_from(response)) == (4_096, "upstream")
    asked = [request.target for request in model.others]
    await chats(url).ask("Hello")
    assert [request.target for request in model.others] == asked, "each is asked once"


async def test_a_404_is_an_answer(model: Model, chats: Chats, url: str) -> None:
    local_server(model, {})
    for number in range(5):
        for _ in range(3):
            await chats(url, Authorization=f"Bearer {number}").ask("Hello")
        await eventually(lambda number=number: len(model.others) == 4 + number)
    targets = [request.target for request in model.others]
    assert targets == ["/v1/models", "/api/ps", "/props", "/api/v0/models", *["/v1/models"] * 4]


async def test_what_one_caller_is_told_holds_for_no_other(model: Model, chats: Chats, url: str) -> None:
    """Each key has a list of its own, which may lack the model, or be missing altogether."""
    windows = {b"Bearer trial": 1_024, b"Bearer paying": 32_768}

    async def lists(exchange: Exchange) -> None:
        if (key := exchange.request.value("authorization")) == b"Bearer lost":
            await exchange.answer_json({"error": "default backend"}, 404)
        else:
            listed = [{"id": "gpt-test", "max_model_len": windows[key]}] if key in windows else []
            await exchange.answer_json({"data": listed})

    local_server(model, {})
    model.elsewhere["/v1/models"] = lists
    for key in ("lost", "restricted", "trial", "paying"):
        chat = chats(url, Authorization=f"Bearer {key}")
        await chat.ask("Hello")
        caller = chat.headers["Authorization"].encode()
        await eventually(lambda c=caller: c in [each.value("authorization") for each in model.others])
        async with asyncio.timeout(PATIENCE):
            while tokens_of(await chat.ask("Hello")).get("window") != windows.get(caller):
                pass
    assert "window" not in tokens_of(await chats(url, Authorization="Bearer lost").ask("Hello"))


async def test_a_model_that_is_still_loading_is_asked_for_again(
    model: Model, chats: Chats, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.engine.models.stated_windows._LOADING", 0.0)
    local_server(model, {"/api/ps": {"models": []}, "/api/show": {**OLLAMA_SHOW, "parameters": ""}})
    chat = chats(url)
    await chat.ask("Hello")
    await eventually(lambda: any(each.target == "/api/show" for each in model.others))
    local_server(model, {"/api/ps": OLLAMA_PS})
    async with asyncio.timeout(PATIENCE):
        while window_from(await chat.ask("Hello")) != "upstream":
            pass


async def test_names_of_models_that_clients_invent_do_not_ask_for_the_list_again_and_again(
    model: Model, chats: Chats, url: str
) -> None:
    local_server(model, {})
    for number in range(10):
        chat = chats(url)
        chat.members["model"] = f"model-{number}"
        await chat.ask("Hello")
        await eventually(lambda: len(model.others) == 4)
    assert len(model.others) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 422])
async def test_a_place_that_one_caller_may_not_see_is_still_asked_by_others(
    model: Model, chats: Chats, url: str, status: int
) -> None:
    async def guarded(exchange: Exchange) -> None:
        is_known = exchange.request.value("authorization") == b"Bearer good"
        await exchange.answer_json(PROPS if is_known else {"error": "no"}, 200 if is_known else status)

    local_server(model, {})
    model.elsewhere["/props"] = guarded
    await chats(url, Authorization="Bearer bad").ask("Hello")
    await eventually(lambda: len(model.others) == 4)
    good = chats(url, Authorization="Bearer good")
    async with asyncio.timeout(PATIENCE):
        while window_from(await good.ask("Hello")) != "upstream":
            pass


async def test_a_place_that_fails_keeps_none_of_the_others_from_being_asked(
    model: Model, chats: Chats, url: str
) -> None:
    local_server(model, {"/props": PROPS})
    model.elsewhere["/v1/models"] = plainly(401, [JSON], b'{"error": "no"}')
    model.elsewhere["/api/ps"] = plainly(500, [JSON], b'{"error": "no"}')
    async with asyncio.timeout(PATIENCE):
        while window_from(await chats(url).ask("Hello")) != "upstream":
            pass


async def test_that_the_models_are_not_listed_is_logged_once_for_each_status(
    model: Model, chats: Chats, url: str
) -> None:
    local_server(model, {})
    with logged() as lines:
        for name, status in (("one", 403), ("two", 403), ("three", 404)):
            model.elsewhere["/v1/models"] = plainly(status, [JSON], b'{"error": "no"}')
            asked = len(model.others)
            chat = chats(url, Authorization=f"Bearer {name}")
            await chat.ask("Hello")
            await eventually(lambda asked=asked: len(model.others) > asked)
        await eventually(lambda: any('"status":404' in line for line in lines))
    told = [json.loads(line)["status"] for line in lines if "does not list its models" in line]
    assert told == [403, 404]
