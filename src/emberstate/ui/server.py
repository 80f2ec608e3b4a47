"""Serves the page: `serve` until it is interrupted, `PageServer` in a thread beside a job.

Thread safety: `PageServer` may be started and stopped by any one thread.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Sequence
from typing import Any

from emberstate.errors import InstallationError, StateDeclarationError
from emberstate.storage.interface import Storage

_log = logging.getLogger("emberstate.ui")


class PageServer:
    """A page over some locations. The port is taken at once; `run` or `start` answer requests."""

    def __init__(
        self, storages: Sequence[Storage], *, host: str = "127.0.0.1", port: int = 0, token: str | None = None
    ) -> None:
        """Port 0 takes a free one. More than loopback has a token: the given one, or a new one."""
        try:
            import jinja2  # noqa: F401
            import uvicorn

            from emberstate.ui.app import make_app
            from emberstate.ui.neighbours import is_own_process
            from emberstate.ui.security import LEAST_TOKEN, is_loopback
        except ModuleNotFoundError as error:
            raise InstallationError(
                f"the web page needs {error.name}: pip install 'emberstate[ui]'", option="ui", found=error.name
            ) from None
        if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
            raise StateDeclarationError(
                f"a token has at least {LEAST_TOKEN} printable ASCII characters, since it is all that keeps others "
                f"out; got {len(token)}. Leave it out to have one made.",
                option="token",
                expected=LEAST_TOKEN,
                found=len(token),
            )
        if token is None and not is_loopback(host):
            token = secrets.token_urlsafe(24)
        self._socket = _bound(host, port)
        self._token = token
        port = self._socket.getsockname()[1]
        name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
        #: Where the page is, without the token.
        self.address = f"http://{f'[{name}]' if ':' in name else name}:{port}/"
        #: The address to open: the token is in it, if there is one.
        self.url = self.address if token is None else f"{self.address}?token={token}"
        app = make_app(storages, host=host, token=token, may_connect=is_own_process if is_loopback(host) else None)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses hold keys, and the first one the token
            server_header=False,
            lifespan="off",
            limit_concurrency=100,
            timeout_keep_alive=20,
        )
        self._server: Any = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Answer requests until the process is interrupted."""
        self._server.run(sockets=[self._socket])

    def start(self) -> None:
        """Answer requests in a thread that ends with the process, or with `stop`."""
        self._thread = threading.Thread(target=self.run, name="emberstate-ui", daemon=True)
        self._thread.start()
        _log.info("the page is at %s", self.address)

    def stop(self) -> None:
        """Answer no more, and release the port; a second call does nothing."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(128)  # a port that is only bound can be bound again
        except OSError:
            made.close()
            raise
        return made
    except OSError as error:
        raise StateDeclarationError(
            f"the page cannot listen on {host}, port {port}: {error}. Choose another by --port, or 0 for a free one.",
            option="port",
            found=port,
        ) from None
