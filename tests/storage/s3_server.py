"""An S3 server on this machine, for tests: moto's, in a thread, with replies that can be lost.

moto looks whether a key is there and then stores it, in two steps. S3 does both in one, so requests are let
through one at a time: what is tested is our side of the protocol.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

BUCKET = "checkpoints"


@dataclass
class S3Server:
    """Where it listens, and what happens to requests, by their method and path."""

    url: str
    #: Carried out, but answered with 500: the client cannot know.
    lose_reply: Callable[[str, str], bool] = lambda method, path: False
    #: Answered with this status and error code, and not carried out.
    refuse: Callable[[str, str], tuple[int, str] | None] = lambda method, path: None
    requests: list[tuple[str, str]] = field(default_factory=list)

    def client_options(self, **config: Any) -> dict[str, Any]:
        """What `S3Storage` needs to find it."""
        config_class = import_module("botocore.config").Config
        return {
            "endpoint_url": self.url,
            "region_name": "us-east-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "config": config_class(s3={"addressing_style": "path"}, proxies={}, **config),
        }

    def reset(self) -> None:
        """Forget what was to go wrong."""
        self.lose_reply = lambda method, path: False
        self.refuse = lambda method, path: None
        self.requests.clear()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A running server with an empty bucket."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: object) -> None:
            pass

    moto = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        server.requests.append((method, path))
        if (refused := server.refuse(method, path)) is not None:
            return _error(start_response, *refused)
        with one_at_a_time:
            if not server.lose_reply(method, path):
                return list(moto(environ, start_response))
            list(moto(environ, lambda *_: None))
        return _error(start_response, 500, "InternalError")

    http = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    server = S3Server(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, name="s3-server", daemon=True)
    thread.start()
    try:
        import_module("boto3").client("s3", **server.client_options()).create_bucket(Bucket=BUCKET)
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def _error(start_response: Callable[..., Any], status: int, code: str) -> Iterable[bytes]:
    start_response(f"{status} {code}", [("Content-Type", "application/xml")])
    return [f"<Error><Code>{code}</Code><Message>on purpose</Message></Error>".encode()]
