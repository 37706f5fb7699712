"""A real S3 server for tests, moto, in a process of its own; and what is made of it by a few changed headers.

moto looks whether an object is there and then writes it, with nothing that keeps another request from coming
in between: of eight that create one object, two sometimes win. So requests are served one by one here.

Google Cloud Storage speaks nearly the same XML: its conditions and versions have other names. No emulator
of it that is installed without a container knows them over XML, so they are translated here.
"""

import atexit
import functools
import json
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote
from uuid import uuid4

from lucius.app.stacks import die_with_parent

Environ = dict[str, Any]
App = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
TOKEN = "a-token-of-google"
FORBIDDEN = "forbidden"
"""A bucket that the key has no right to."""


@dataclass(frozen=True)
class S3Server:
    """Addresses of one store. Buckets are the same at all of them."""

    endpoint: str
    """Takes any key."""
    keyed: str
    """Takes this key and no other."""
    key: str
    secret: str
    unconditional: str
    """Ignores conditions, as stores did for long."""
    unable: str
    """Answers 501 to a request with a condition, as some stores do."""
    gcs: str
    """Speaks as Google Cloud Storage does, and takes TOKEN."""

    @property
    def known(self) -> dict[str, str]:
        """Variables that hold its addresses, and credentials which it takes."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "GOOGLE_BEARER_TOKEN": TOKEN,
            "AWS_ENDPOINT_URL": self.keyed,
            "STORAGE_EMULATOR_HOST": self.gcs,
        }

    def bucket(self) -> str:
        """A new one."""
        name = f"suite-{uuid4().hex[:12]}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=60).close()
        return name


@functools.cache
def shared_s3() -> S3Server:
    """One for all tests of a process."""
    process = subprocess.Popen(
        [sys.executable, "-P", __file__],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    assert process.stdout is not None
    atexit.register(_ended, process)
    return S3Server(**json.loads(process.stdout.readline()))


def _ended(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    stdout: IO[bytes] | None = process.stdout
    if stdout is not None:
        stdout.close()


# -- the process -------------------------------------------------------------------------------


class Versions:
    """The same store as Google Cloud Storage speaks of it: each write of an object is a generation."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._written: defaultdict[str, int] = defaultdict(int)

    def __call__(self, environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("HTTP_AUTHORIZATION") != f"Bearer {TOKEN}":
            start("401 Unauthorized", [("Content-Length", "0")])
            return []
        environ["HTTP_AUTHORIZATION"] = "AWS a:b"
        place, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        plain = quote(place.encode("latin-1"))  # its client escapes more than one of S3 does
        environ["RAW_URI"] = f"{plain}?{environ['QUERY_STRING']}"
        wanted = environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None)
        if wanted == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        elif wanted is not None and int(wanted) != 1000 + self._written[place]:
            environ["HTTP_IF_MATCH"] = '"another"'

        def started(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            if method == "PUT" and status.startswith("200"):
                self._written[place] += 1
            version = ("x-goog-generation", str(1000 + self._written[place]))
            return start(status, [*headers, version], *more)

        return self._app(environ, started)


def _without_conditions(app: App) -> App:
    def serve(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        environ.pop("HTTP_IF_MATCH", None)
        return app(environ, start)

    return serve


def _unable(app: App) -> App:
    def serve(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ:
            start("501 Not Implemented", [("Content-Length", "0")])
            return []
        return app(environ, start)

    return serve


def _serve() -> None:
    from moto import settings
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        def log(self, *args: Any) -> None: ...

    one_by_one, moto = threading.RLock(), DomainDispatcherApplication(create_backend_app)

    def store(environ: Environ, start: Callable[..., Any], *, keyed: bool = False) -> list[bytes]:
        with one_by_one:
            settings.INITIAL_NO_AUTH_ACTION_COUNT = 0 if keyed else float("inf")
            return list(moto(environ, start))

    def opened(app: App) -> str:
        server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    def serialised(app: App) -> App:
        def serve(environ: Environ, start: Callable[..., Any]) -> Iterable[bytes]:
            with one_by_one:
                return app(environ, start)

        return serve

    endpoint = opened(store)
    key, secret = _new_key(endpoint)
    server = S3Server(
        endpoint=endpoint,
        keyed=opened(functools.partial(store, keyed=True)),
        key=key,
        secret=secret,
        unconditional=opened(_without_conditions(store)),
        unable=opened(_unable(store)),
        gcs=opened(serialised(Versions(store))),
    )
    print(json.dumps(vars(server)), flush=True)
    threading.Event().wait()


def _new_key(endpoint: str) -> tuple[str, str]:
    """Of a user who may do everything in S3, but for one bucket."""
    import boto3

    iam = boto3.client(
        "iam",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    iam.create_user(UserName="lucius")
    allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    bucket = f"arn:aws:s3:::{FORBIDDEN}"
    denied = {"Effect": "Deny", "Action": "s3:*", "Resource": [bucket, f"{bucket}/*"]}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed, denied]})
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{FORBIDDEN}", method="PUT")).close()
    iam.put_user_policy(UserName="lucius", PolicyName="all", PolicyDocument=policy)
    made = iam.create_access_key(UserName="lucius")["AccessKey"]
    return made["AccessKeyId"], made["SecretAccessKey"]


if __name__ == "__main__":
    _serve()
