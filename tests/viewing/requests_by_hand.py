"""HTTP requests whose every byte is ours: clients of the library tidy up what an attacker would not."""

from __future__ import annotations

import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def ask(port: int, path: str, host: str | None = "127.0.0.1", method: str = "GET", **headers: str) -> Answer:
    """Ask 127.0.0.1 for ``path`` as it stands, under the name ``host`` (None: under none)."""
    named = {"Host": host, **headers} if host is not None else headers
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in named.items()) + "\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head.encode())
        data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    top, _, body = data.partition(b"\r\n\r\n")
    status, *lines = top.decode().split("\r\n")
    answered = dict(line.split(": ", 1) for line in lines)
    return Answer(int(status.split()[1]), {name.lower(): value for name, value in answered.items()}, body)
