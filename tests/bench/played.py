"""What goes upstream and what goes to the client while recorded sessions are played, to compare two versions.

    make bench-bytes DATA="*.jsonl.gz" ARGS="--out before.jsonl"     (there, and then here)
    diff before.jsonl after.jsonl

A real `unabridged serve` with its embedded store. The upstream answers each turn as it was recorded, and
calls of the proxy's own with words of what it was asked, so that two runs of one version say the same:
after each turn it is waited until nothing is under way any more. Each line of the output tells a turn:
digests of both bodies, and the proxy's headers but for the session's random name. Sessions take turns at the
presets; half of them name themselves, and half of them stream.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from http.client import OK, HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from tests.bench.serving import Served, serving

PRESETS = "default", "balanced", "conservative", "aggressive", "agent", "exchanges", "sliding-window"
BUDGETS = 4_000, 8_000
WAIT = '[summary]\nwait = "60s"\n'
"""Then an epoch that has begun has its summary, however busy the machine is."""
_SESSION_KEY = re.compile(rb'"prompt_cache_key":"\w+",')
"""A session's name is random."""
PATIENCE = 60.0
"""Seconds in which what a turn leaves under way ends."""


class Upstream(ThreadingHTTPServer):
    """Answers as told beforehand; keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Chat)
        self.reply: dict[str, Any] = {}
        """What is answered to the request under way."""
        self.received: list[bytes] = []
        self.asked: set[str] = set()
        """Digests of the proxy's own questions."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Calls of the proxy's own are cancelled on purpose, when a user's request arrives."""

    def answer(self, raw: bytes) -> tuple[dict[str, Any], bool]:
        """The message that answers a body, and whether it is wanted as a stream."""
        body: dict[str, Any] = json.loads(raw)
        if body.get("metadata") == {"played": "yes"}:
            self.received.append(raw)
            return self.reply, bool(body.get("stream"))
        self.asked.add(_digest(raw))
        words = re.findall(r"\w+", str(body["messages"][-1]["content"]))
        return {"role": "assistant", "content": "Of this remains: " + " ".join(words[3::17][:90])}, False


class _Chat(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        message, streamed = cast("Upstream", self.server).answer(raw)
        usage = {"prompt_tokens": len(raw) // 4, "completion_tokens": 9, "total_tokens": len(raw) // 4 + 9}
        told: dict[str, Any] = {"id": "1", "created": 0, "model": "m", "usage": usage}
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
        }
        if streamed:
            calls = [call | {"index": number} for number, call in enumerate(message.get("tool_calls") or ())]
            choice["delta"] = message | ({"tool_calls": calls} if calls else {})
            chunk = told | {"object": "chat.completion.chunk", "choices": [choice]}
            self._say("text/event-stream", b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(chunk).encode())
        else:
            whole = told | {"object": "chat.completion", "choices": [choice | {"message": message}]}
            self._say("application/json", json.dumps(whole).encode())

    def do_GET(self) -> None:
        self._say("application/json", b'{"object": "list", "data": []}')

    def _say(self, kind: str, raw: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing of each request."""


def main() -> None:
    """Play every session, at every budget."""
    arguments = _arguments()
    with _playing() as (upstream, served), arguments.out.open("w") as out:
        client = HTTPConnection(served.host, timeout=PATIENCE)
        idle = _tasks(client)
        for path in arguments.data:
            for number, session in enumerate(_sessions(path, arguments.every)):
                for budget in BUDGETS:
                    for told in _play(upstream, client, idle, number, session, budget):
                        out.write(json.dumps({"file": Path(path).name} | told) + "\n")
                        if arguments.keep:
                            (arguments.keep / f"{told['up']}.json").write_bytes(upstream.received[-1])
            print(path, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1, help="play each n-th session")
    parser.add_argument("--keep", type=Path, help="a folder for the bodies that went upstream, by digest")
    return parser.parse_args()


@contextmanager
def _playing() -> Generator[tuple[Upstream, Served]]:
    upstream = Upstream()
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        for preset in PRESETS:
            Path(folder, f"{preset}-played.toml").write_text(f'extends = "{preset}"\n{WAIT}')
        with serving(f"http://127.0.0.1:{upstream.server_address[1]}/v1", f"--policies={folder}") as served:
            yield upstream, served
    upstream.shutdown()


def _sessions(path: str, every: int) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines][::every]


def _play(
    upstream: Upstream,
    client: HTTPConnection,
    idle: float,
    number: int,
    session: dict[str, Any],
    budget: int,
) -> Iterator[dict[str, Any]]:
    name = f"{session['id']}-{budget}"
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {name}",
        "X-Unabridged-Budget": str(budget),
        "X-Unabridged-Policy": f"{PRESETS[number % len(PRESETS)]}-played",
    }
    if number % 2:
        headers["X-Unabridged-Session"] = re.sub(r"\W", "-", name)
    streamed = bool(number // 2 % 2)
    messages: Sequence[dict[str, Any]] = session["messages"]
    for turn, message in enumerate(messages):
        if turn == 0 or message["role"] != "assistant":
            continue
        upstream.reply, upstream.asked = message, set()
        body = {"model": "gpt-4o", "messages": messages[:turn], "metadata": {"played": "yes"}}
        client.request("POST", "/v1/chat/completions", json.dumps(body | {"stream": streamed}), headers)
        response = client.getresponse()
        raw = response.read()
        if response.status != OK:
            raise SystemExit(f"{name}, turn {turn}: {response.status} {raw!r}")
        own = {key.lower(): value for key, value in response.getheaders()}
        told = {key: value for key, value in own.items() if key.startswith("x-unabridged")}
        told.pop("x-unabridged-session", None)
        told["x-unabridged-tokens"] = re.sub(r"session=\w+", "", told.get("x-unabridged-tokens", ""))
        _settle(client, idle)
        yield {
            "session": name,
            "turn": turn,
            "up": _digest(upstream.received[-1]),
            "down": _digest(raw),
            "own": sorted(upstream.asked),
            "told": told,
        }


def _digest(raw: bytes) -> str:
    return hashlib.sha256(_SESSION_KEY.sub(b"", raw)).hexdigest()[:16]


def _tasks(client: HTTPConnection) -> float:
    client.request("GET", "/metrics")
    found = re.search(rb"^unabridged_tasks ([\d.]+)", client.getresponse().read(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def _settle(client: HTTPConnection, idle: float) -> None:
    deadline = time.monotonic() + PATIENCE
    while _tasks(client) > idle:
        if time.monotonic() > deadline:
            raise SystemExit("what a turn left under way did not end")
        time.sleep(0.002)


if __name__ == "__main__":
    main()
