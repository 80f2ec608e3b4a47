"""`emberstate ui`: the web page of jobs."""

from __future__ import annotations

import contextlib
import sys

import click

from emberstate.cli.console import note, print_line
from emberstate.storage.uri import open_storage
from emberstate.ui.server import PageServer


@click.command()
@click.argument("locations", metavar="LOCATION...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen there; 0.0.0.0 is everywhere.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="0 takes one that is free."
)
@click.option(
    "--token",
    envvar="EMBERSTATE_UI_TOKEN",
    help="Ask for this token. Other users see arguments of processes: better set EMBERSTATE_UI_TOKEN.",
)
def ui(locations: tuple[str, ...], host: str, port: int, token: str | None) -> None:
    """Show jobs on a web page: batches, checkpoints, slots, the state of any key, errors.

    It reads the locations and changes nothing there; the jobs may run meanwhile. It listens on loopback, for the user's
    own processes. If --host is more than that, it asks for a token, makes one if none is given, and prints the address
    with it. End it with Ctrl-C.
    """
    server = PageServer([open_storage(location) for location in locations], host=host, port=port, token=token)
    print_line(server.url)
    sys.stdout.flush()  # it may be a pipe, and the server runs on
    if token is None and server.url != server.address:
        note("the page is not encrypted: on a network with strangers use an SSH tunnel, or a proxy with TLS")
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
