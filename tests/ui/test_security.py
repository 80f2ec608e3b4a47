"""Who may see the page: hosts, origins, methods, users, tokens."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from pathlib import Path

import pytest

from emberstate.errors import InstallationError, StateDeclarationError
from emberstate.storage.uri import open_storage
from emberstate.ui.neighbours import user_of
from emberstate.ui.security import HEADERS
from emberstate.ui.server import PageServer
from tests.patience import PATIENCE
from tests.raising import raising
from tests.ui.conftest import Client

TOKEN = "a-token-of-this-test"


@pytest.mark.parametrize(
    ("listens", "host", "status"),
    [
        ("127.0.0.1", "localhost", 200),
        ("127.0.0.1", "localhost:9999", 200),
        ("127.0.0.1", "127.0.0.1:8787", 200),
        ("127.0.0.1", "[::1]:8787", 200),
        ("127.0.0.1", "attacker.example", 421),
        ("127.0.0.1", "localhost.attacker.example", 421),
        ("127.0.0.1", "192.168.0.9", 421),
        ("127.0.0.1", "127.0.0.1@attacker.example", 421),
        ("127.0.0.1", "[::1", 421),
        ("127.0.0.1", "", 421),
        ("0.0.0.0", "192.168.0.9:8787", 200),
        ("0.0.0.0", "attacker.example", 421),
        ("box.example", "box.example", 200),
    ],
)
def test_only_names_of_the_machine_are_answered(
    made: Path, client: Client, listens: str, host: str, status: int
) -> None:
    """Catches: DNS rebinding: a hostile name that points to this machine, and so gets the page as its own."""
    assert client(made, host=listens).get("/", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:8787"}, 200),
        ({"Origin": "http://localhost:8788"}, 403),
        ({"Origin": "http://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
    ],
)
def test_other_origins_are_refused(made: Path, client: Client, headers: dict[str, str], status: int) -> None:
    """Catches: a web site whose scripts read state, or that shows the page in a frame; a link that no longer works."""
    assert client(made).get("/job/0/states.json", headers=headers).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_the_page_is_read_only(made: Path, client: Client, method: str) -> None:
    """Catches: a method that is answered."""
    assert client(made).request(method, "/job/0/states").status_code == 405


@pytest.mark.parametrize("path", ["/", "/nothing", "/static/app.js", "/job/0/states.json", "/job/0/key?at=x"])
def test_every_answer_has_the_headers(made: Path, client: Client, path: str) -> None:
    """Catches: an answer, of an error too, that lets a browser load something from elsewhere or frame it."""
    for web in (client(made), client(made, token=TOKEN)):
        answer = web.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"] and "http" not in HEADERS["content-security-policy"]


def test_a_token_is_asked_for_and_kept_in_a_cookie(made: Path, client: Client) -> None:
    """Catches: a page, or its JSON, without the token; a cookie that scripts or other sites get; a token that stays in
    the address; a redirection to another site."""
    web = client(made, host="0.0.0.0", token=TOKEN)

    assert [web.get(path).status_code for path in ("/", "/job/0/states.json", "/nothing")] == [401, 401, 401]
    assert web.get("/?token=wrong").status_code == 401
    assert web.get("/", headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 401
    assert web.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert web.get("/", headers={"Cookie": f"emberstate_ui_8787={TOKEN}"}).status_code == 401
    away = web.get(f"http://localhost:8787//attacker.example/?token={TOKEN}")
    assert away.headers["location"] == "/attacker.example/"
    web.cookies.clear()
    welcome = web.get(f"/job/0/key?key=ann&token={TOKEN}")
    assert (welcome.status_code, welcome.headers["location"]) == (303, "/job/0/key?key=ann")
    cookie = welcome.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie
    assert web.get("/job/0/states").status_code == 200
    web.cookies.clear()
    assert web.post("/login", content="token=wrong").status_code == 401
    assert web.post("/login", content=f"token={TOKEN}").status_code == 303
    assert web.get("/").status_code == 200


def test_more_than_loopback_has_a_token(made: Path) -> None:
    """Catches: a page on the network without a token, or with one that can be guessed."""
    storage = open_storage(made)
    made_up = PageServer([storage], host="0.0.0.0")
    given = PageServer([storage], host="127.0.0.1", token=TOKEN)
    alone = PageServer([storage])
    try:
        assert len(made_up.url.partition("?token=")[2]) >= 32
        assert given.url == f"{given.address}?token={TOKEN}"
        assert alone.url == alone.address and alone.address.startswith("http://127.0.0.1:")
    finally:
        for server in (made_up, given, alone):
            server.stop()
    for short in ("", "short", "sixteen letters\n"):
        with raising(StateDeclarationError, option="token"):
            PageServer([storage], token=short)


def test_a_port_that_is_taken_is_named(made: Path) -> None:
    """Catches: a traceback for a port that somebody has."""
    first = PageServer([open_storage(made)])
    port = int(first.address.rpartition(":")[2].strip("/"))
    try:
        first.start()
        with raising(StateDeclarationError, option="port", found=port):
            PageServer([open_storage(made)], port=port)
    finally:
        first.stop()
        first.stop()


def test_without_the_extra_the_error_names_it(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a ModuleNotFoundError of a package that nobody knows."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with raising(InstallationError, r"emberstate\[ui\]", option="ui", found="uvicorn"):
        PageServer([open_storage(made)])


ASK = """
import email.parser, encodings.idna, http.client, os, sys
os.setuid(int(sys.argv[2]))
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("GET", "/index.json")
print(connection.getresponse().status)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_is_turned_away(made: Path) -> None:
    """Catches: state that every user of a machine reads by way of the page, though its files are the owner's alone."""
    server = PageServer([open_storage(made)])
    port = server.address.rpartition(":")[2].strip("/")
    server.start()
    try:

        def ask(user: int) -> str:
            command = [sys.executable, "-c", ASK, port, str(user)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
            return done.stdout.strip()

        assert (ask(65534), ask(0)) == ("403", "200")
        connection = http.client.HTTPConnection("127.0.0.1", int(port))
        connection.connect()
        assert user_of(connection.sock.getsockname(), connection.sock.getpeername()) == os.geteuid()
        assert user_of(("127.0.0.1", 1), connection.sock.getpeername()) is None
        connection.close()
    finally:
        server.stop()
