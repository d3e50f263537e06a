"""Clients that play a script: they speak HTTP to any worker, and write down what they sent and got."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from tests.histories.history import Attempt, History, Message, Mode, Outcome
from tests.histories.reading import Reading
from tests.histories.scripts import WORKERS, Act, Client, Step, Then
from tests.histories.wire import Answer, ConnectionBrokenError, post
from tests.support.clients import user

PATIENCE = 20.0
"""Most seconds that a client waits for anything."""
_RETRIES = 3
_BACKING_OFF = 0.1
"""Seconds by which the pause before retries grows; the first retry comes at once."""
_PADDING = " and on it goes" * 12
"""Makes a turn long enough for a small budget to be reached."""


class Sender:
    """Sends attempts to the workers, and records their outcomes."""

    def __init__(self, history: History, urls: Sequence[str], attempted: Callable[[Attempt], None]) -> None:
        self._history = history
        self._urls = urls
        self._attempted = attempted

    async def send(self, attempt: Attempt, client: Client, step: Step, key: str) -> Attempt:
        """Make an attempt, and record its outcome in it."""
        self._history.attempts.append(attempt)
        self._attempted(attempt)
        reading = Reading()
        limit = step.leave / 1000 if step.leave is not None and not step.streams else PATIENCE
        try:
            async with asyncio.timeout(limit):
                await self._exchange(attempt, client, step, key, reading)
        except TimeoutError:
            attempt.outcome = Outcome.LEFT
            attempt.code = "" if limit < PATIENCE else "no answer in time"
        except ConnectionBrokenError:
            attempt.outcome = Outcome.CUT if attempt.status else Outcome.BROKEN
        attempt.answer, attempt.ended = reading.message, asyncio.get_running_loop().time()
        return attempt

    async def _exchange(
        self, attempt: Attempt, client: Client, step: Step, key: str, reading: Reading
    ) -> None:
        url = f"{self._urls[attempt.worker % len(self._urls)]}/v1/chat/completions"
        body = json.dumps(_body(attempt, client, step)).encode()
        headers = _headers(attempt, client, step, key)
        async with post(url, headers, body) as answer:
            _note(attempt, answer)
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                reading.take_body(b"".join([chunk async for chunk in answer.chunks()]))
            else:
                async with aclosing(answer.chunks()) as chunks:
                    async for chunk in chunks:
                        reading.feed(chunk)
                        if step.leave is not None and reading.events > step.leave:
                            attempt.outcome = Outcome.LEFT
                            return
        attempt.code = reading.code
        usual = Outcome.ANSWERED if reading.is_done else Outcome.CUT
        attempt.outcome = usual if attempt.status == 200 else Outcome.REFUSED


def _note(attempt: Attempt, answer: Answer) -> None:
    attempt.status = answer.status
    attempt.session = answer.headers.get("x-unabridged-session", "")
    reasons = answer.headers.get("x-unabridged-degraded", "")
    attempt.degraded = tuple(reason for reason in reasons.split(", ") if reason)
    cut = answer.headers.get("x-unabridged-cut")
    attempt.cut = None if cut is None else int(cut)


def _body(attempt: Attempt, client: Client, step: Step) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "gpt-test", "messages": list(attempt.sent)}
    if step.streams:
        body["stream"] = True
    if client.user:
        body["user"] = client.user
    return body


def _headers(attempt: Attempt, client: Client, step: Step, key: str) -> dict[str, str]:
    headers = {
        "Authorization": client.credential,
        "Content-Type": "application/json",
        "X-Attempt": attempt.id,
        "X-Fate": step.fate,
        "x-stainless-retry-count": "1" if attempt.retries else "0",
    }
    if client.header:
        headers["X-Unabridged-Session"] = client.header
    if client.mode is Mode.APPEND:
        headers["X-Unabridged-Mode"] = "append"
    if client.budget:
        headers["X-Unabridged-Budget"] = str(client.budget)
    if key:
        headers["Idempotency-Key"] = key
    return headers


class Player:
    """A client that plays its script. `messages` is its history, without the head."""

    def __init__(self, sender: Sender, client: Client, number: int, seed: int) -> None:
        self._sender = sender
        self._client = client
        self._label = f"h{seed}.c{number}"
        self._count = 0
        self._newest: list[Message] = []
        self.messages: list[Message] = []

    async def play(self) -> None:
        """Make all steps, one after the other."""
        acts: dict[Act, Callable[[Step], Awaitable[None]]] = {
            Act.REGENERATE: self._regenerate,
            Act.EDIT: self._edit,
            Act.FORK: self._fork,
            Act.TITLE: self._title,
            Act.TWICE: self._twice,
        }
        for step in self._client.steps:
            await asyncio.sleep(step.pause / 1000)
            await acts.get(step.act, self._say)(step)

    async def say_last(self, worker: int) -> None:
        """Make one more turn, undisturbed: its answer must report what was lost before."""
        await self._say(Step(worker=worker, streams=False))

    # --- steps ---

    async def _say(self, step: Step) -> None:
        past = list(self.messages)
        words = "yes" if step.act is Act.YES else self._words("says")
        await self._turn(past, [user(words)], step)

    async def _turn(self, past: list[Message], new: list[Message], step: Step) -> None:
        """Send `new` after `past`, answer the calls of the answer, and add everything to the history."""
        key = self._next() if step.keyed else ""
        attempt = await self._attempt(past, new, step, key=key)
        for retry in range(_RETRIES):
            if attempt.is_answered or step.then is not Then.RETRY or self._repeats(new, attempt):
                break
            await asyncio.sleep(_BACKING_OFF * retry)
            again = replace(step, fate="answer", leave=None, worker=(step.worker + 1 + retry) % WORKERS)
            attempt = await self._attempt(past, new, again, key=key, retries=attempt.id)
        calls: list[Message] = (attempt.answer or {}).get("tool_calls") or []
        keeps = attempt.is_answered or (step.then is Then.KEEP and not calls)
        if attempt.answer is not None and keeps:
            self.messages = [*past, *new, attempt.answer]
            self._newest = new
            if calls:
                await self._give_results(calls, step)
        else:
            self.messages = past

    def _repeats(self, new: list[Message], attempt: Attempt) -> bool:
        """Whether a retry would look like one of the turn before, of which the same was said.

        Of an attempt that did not get as far as the upstream nothing is known, so it is not tried again.
        """
        return new == self._newest and attempt.status in (0, 503)

    async def _give_results(self, calls: list[Message], step: Step) -> None:
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": self._words("found")} for call in calls
        ]
        past = list(self.messages)
        await self._turn(past, results, replace(step, fate="answer", then=Then.RETRY, leave=None))
        if self.messages == past:  # unanswered for good: no call without its result goes on
            self.messages = []

    async def _regenerate(self, step: Step) -> None:
        before = self.messages
        if len(before) < 2 or before[-1]["role"] != "assistant":
            await self._say(step)
            return
        await self._turn(before[:-2], [before[-2]], replace(step, then=Then.DROP))
        if self.messages == before[:-2]:
            self.messages = before

    async def _edit(self, step: Step) -> None:
        places = [place for place, each in enumerate(self.messages) if each["role"] == "user"]
        if places:
            self.messages = self.messages[: places[step.pick % len(places)]]
        await self._say(step)

    async def _fork(self, step: Step) -> None:
        past = self.messages
        new = [[user(self._words("says"))] for _ in range(2)]
        steps = [step, replace(step, fate="slow", leave=None, worker=step.worker + 1)]
        made = await asyncio.gather(
            *(self._attempt(past, each, how) for each, how in zip(new, steps, strict=True))
        )
        for attempt, each in zip(made, new, strict=True):
            if attempt.is_answered and attempt.answer and not attempt.answer.get("tool_calls"):
                self.messages = [*past, *each, attempt.answer]
                return

    async def _title(self, step: Step) -> None:
        asked = [user(f"{self._words('wants a title')}")]
        aside = self._attempt([], asked, Step(worker=step.worker), is_aside=True)
        if not self.messages:  # of two requests that begin a session, which is the title's?
            await self._say(step)
            await aside
            return
        await asyncio.gather(aside, self._say(step))

    async def _twice(self, step: Step) -> None:
        past, new = self.messages, [user(self._words("says"))]
        first = self._next()
        made = await asyncio.gather(
            self._attempt(past, new, replace(step, leave=None), id=first),
            self._attempt(past, new, replace(step, leave=None, worker=step.worker + 1), twin=first),
        )
        for attempt in made:
            if attempt.is_answered and attempt.answer and not attempt.answer.get("tool_calls"):
                self.messages = [*past, *new, attempt.answer]
                return

    # --- words and attempts ---

    def _next(self) -> str:
        self._count += 1
        return f"{self._label}.{self._count}"

    def _words(self, verb: str) -> str:
        if self._client.greets and self._count == 0:
            self._count += 1
            return "Hello"
        return f"{self._next()} {verb}{_PADDING if self._client.budget else ''}"

    async def _attempt(
        self,
        past: Sequence[Message],
        new: Sequence[Message],
        step: Step,
        *,
        id: str = "",  # noqa: A002 - what it is
        key: str = "",
        **marks: Any,
    ) -> Attempt:
        client, made = self._client, id or self._next()
        head = [{"role": "system", "content": f"It is {made} o'clock."}] if client.has_clock else []
        whole = (*head, *new) if client.mode is Mode.APPEND else (*head, *past, *new)
        attempt = Attempt(
            id=made,
            talk=client.talk,
            mode=client.mode,
            sent=whole,
            began=asyncio.get_running_loop().time(),
            worker=step.worker % WORKERS,
            fate=step.fate,
            header=client.header,
            tenant=client.credential,
            **marks,
        )
        return await self._sender.send(attempt, client, step, key)
