"""An OIDC issuer on loopback that people sign in at: discovery, authorization code with PKCE, tokens."""

import hashlib
import json
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.security.issuer import Issuer

CLIENT_ID = "console"
CLIENT_SECRET = "a secret of the client"
SCOPES = "openid lucius"


class SignInIssuer(Issuer):
    """Whoever comes is signed in. `claims_of` changes the tokens, `opaque` hides the access token."""

    def __init__(self, private: dict[str, Any]) -> None:
        super().__init__(private)
        self.base = ""
        self.asked_for: list[dict[str, str]] = []
        self.claims_of: dict[str, Any] = {}
        self.opaque = False
        self.refuses: str | None = None
        self.calls_itself: str | None = None
        self.promises_iss = False
        self.answers_as: str | None = None
        self._codes: dict[str, dict[str, str]] = {}

    def discovery(self) -> dict[str, Any]:
        return {
            "authorization_response_iss_parameter_supported": self.promises_iss,
            "issuer": self.calls_itself or self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "jwks_uri": f"{self.base}/keys",
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser is sent back to."""
        self.asked_for.append(query)
        if self.refuses is not None:
            answer = {"error": "access_denied", "error_description": self.refuses}
        else:
            code = token_urlsafe(8)
            self._codes[code] = query
            answer = {"code": code}
        if self.answers_as is not None:
            answer["iss"] = self.answers_as
        return f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state']})}"

    def tokens(self, form: dict[str, str]) -> dict[str, Any] | None:
        """None where a real issuer would refuse."""
        asked = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or asked["code_challenge"] != challenge:
            return None
        same = ("client_id", "redirect_uri")
        if any(asked[name] != form.get(name) for name in same):
            return None
        if form.get("client_secret") != CLIENT_SECRET:
            return None
        token = self.token(**{"iss": self.base, "nonce": asked["nonce"], **self.claims_of})
        return {"access_token": "opaque" if self.opaque else token, "id_token": token}

    @contextmanager
    def running(self) -> Iterator["SignInIssuer"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.base = f"http://127.0.0.1:{server.server_address[1]}"
        self.url = f"{self.base}/keys"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def handler_of(issuer: SignInIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                query = {name: texts[0] for name, texts in parse_qs(parts.query).items()}
                self.send_response(302)
                self.send_header("location", issuer.authorize(query))
                self.send_header("content-length", "0")
                self.end_headers()
                return
            keys = parts.path == "/keys"
            self._answer(issuer.key_set() if keys else json.dumps(issuer.discovery()).encode())

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            fields = parse_qs(self.rfile.read(length).decode())
            found = issuer.tokens({name: texts[0] for name, texts in fields.items()})
            body = found if found is not None else {"error": "invalid_grant"}
            self._answer(json.dumps(body).encode(), 200 if found is not None else 400)

        def _answer(self, body: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    return Handler
