"""Which user's process is at the other end of a connection on loopback, by the kernel's table of connections.

Thread safety: pure functions of what the kernel says.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path
from typing import Final

from starlette.types import Scope

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"
_ROOT: Final = 0


def is_own_process(scope: Scope) -> bool:
    """Whether the client is a process of this process's user, or of root, who reads everything anyway."""
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None:
        return False
    user = user_of(tuple(client), tuple(server))
    return user is not None and user in (os.geteuid(), _ROOT)


def user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user that owns the client's end of a connection; None if the kernel does not list it."""
    wanted = {(one, other) for one in _written(*client) for other in _written(*server)}
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if (fields[1], fields[2]) in wanted and fields[3] == _ESTABLISHED:
                return int(fields[7])
    return None


def _written(host: str, port: int) -> list[str]:
    """An address as the tables have it: also as the IPv6 form of an IPv4 address, which some programs use."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return []
    forms = [address.packed]
    if isinstance(address, ipaddress.IPv4Address):
        forms.append(ipaddress.IPv6Address(f"::ffff:{host}").packed)
    return [f"{_words(packed)}:{port:04X}" for packed in forms]


def _words(packed: bytes) -> str:
    """Words of four bytes, each in the order of the machine."""
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join((word[::-1] if sys.byteorder == "little" else word).hex().upper() for word in words)
