"""A small OpenAI-compatible API on loopback that says what it is told, and remembers what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class AnswerApi(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.said: Any = "They pay 18,400 crowns [1, 2]."
        self.raw: bytes | None = None
        """What is answered instead of a chat completion."""
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.together: threading.Barrier | None = None
        """Who asks is answered when so many have asked."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return json.dumps({"choices": [{"message": {"content": self.said}}]}).encode()


class Handler(BaseHTTPRequestHandler):
    server: AnswerApi

    def do_POST(self) -> None:
        api = self.server
        content = self.rfile.read(int(self.headers["content-length"]))
        api.asked.append({"path": self.path, **json.loads(content)})
        api.keys.append(self.headers["authorization"])
        if api.together is not None:
            try:
                api.together.wait()
            except threading.BrokenBarrierError:  # nobody waits for the answer any more
                return
        body = api.body()
        self.send_response(api.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on the terminal."""


@contextmanager
def answer_api() -> Iterator[AnswerApi]:
    with AnswerApi() as api:
        thread = threading.Thread(target=api.serve_forever)
        thread.start()
        try:
            yield api
        finally:
            api.shutdown()
            thread.join()
