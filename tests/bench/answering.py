"""A scripted upstream on a port of its own, for benchmarks: it answers whole, and at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Summary calls are cancelled on purpose, when a user's request arrives."""


@contextmanager
def answering(reply: Callable[[bytes], str]) -> Generator[str]:
    """Its URL. ``reply`` gives the text of an answer to a request's body."""

    class Chat(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_POST(self) -> None:
            text = reply(self.rfile.read(int(self.headers["Content-Length"])))
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            self._say(
                {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            )

        def do_GET(self) -> None:
            self._say({"object": "list", "data": []})

        def _say(self, value: object) -> None:
            raw = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Say nothing of each request."""

    server = _Server(("127.0.0.1", 0), Chat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
