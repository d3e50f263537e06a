"""A real Chromium, controlled by the DevTools protocol on a pair of pipes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--host-resolver-rules=MAP *.example 127.0.0.1",
)
PATIENCE = 60.0
"""Seconds within which a browser must start, and a page must do its work."""
_MOST = 64 * 1024 * 1024
_ON_PIPES = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""Chromium expects its pipes as descriptors 3 and 4."""


@asynccontextmanager
async def running(
    profile: Path, *arguments: str, pipes: tuple[int, int] | None = None
) -> AsyncGenerator[None]:
    """Run a browser with an empty profile; it reads commands from ``pipes``, and writes to them."""
    assert CHROMIUM is not None
    program = [CHROMIUM, *FLAGS, f"--user-data-dir={profile / 'empty'}", *arguments]
    if pipes is not None:
        program = [sys.executable, "-c", _ON_PIPES, *map(str, pipes), *program]
    with (profile / "chromium.log").open("wb") as log:
        browser = await asyncio.create_subprocess_exec(
            *program,
            stdout=log,
            stderr=log,
            pass_fds=pipes or (),
            start_new_session=True,
        )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            browser.terminate()
        await browser.wait()


@dataclass
class Tab:
    """A tab that the test controls."""

    reader: asyncio.StreamReader
    commands: int
    """The end of a pipe that the browser reads."""
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The events of the browser, in order."""
    _numbers: count[int] = field(default_factory=lambda: count(1))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a command; events that arrive meanwhile are kept."""
        number = next(self._numbers)
        of_session = {"sessionId": self.session} if self.session else {}
        asked = {"id": number, "method": method, "params": parameters, **of_session}
        os.write(self.commands, json.dumps(asked).encode() + b"\0")
        while (told := await self._read()).get("id") != number:
            self.events.append(told)
        assert "error" not in told, told
        return told["result"]

    async def _read(self) -> dict[str, Any]:
        return json.loads((await self.reader.readuntil(b"\0"))[:-1])

    async def until(self, method: str) -> None:
        """Wait for an event of this name."""
        while (told := await self._read()).get("method") != method:
            self.events.append(told)
        self.events.append(told)

    async def open(self, url: str) -> None:
        """Load a page, and wait until it is complete."""
        await self.call("Page.navigate", url=url)
        await self.until("Page.loadEventFired")

    async def press(self, button: str) -> None:
        """Click the button or link with this text, and wait for the next page."""
        found = f"""[...document.querySelectorAll('main a, main button, header button')]
            .find((each) => each.textContent.trim() === {json.dumps(button)})"""
        await self.evaluate(f"{found}.click()")
        await self.until("Page.loadEventFired")

    async def evaluate(self, script: str) -> Any:
        """Return the value of a script."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def of(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all events of a name."""
        return [each["params"] for each in self.events if each.get("method") == method]


@asynccontextmanager
async def leading(profile: Path) -> AsyncGenerator[Tab]:
    """Yield a tab of a new browser, with events for its requests and console messages."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    reader = asyncio.StreamReader(limit=_MOST)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb")
    )
    try:
        async with (
            running(profile, "--remote-debugging-pipe", "about:blank", pipes=(theirs_in, theirs_out)),
            asyncio.timeout(PATIENCE),
        ):
            tab = Tab(reader, ours_out)
            target = await tab.call("Target.createTarget", url="about:blank")
            attached = await tab.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            tab.session = attached["sessionId"]
            for domain in ("Page", "Network", "Log", "Audits"):
                await tab.call(f"{domain}.enable")
            yield tab
    finally:
        transport.close()
        for end in (theirs_in, theirs_out, ours_out):
            os.close(end)
