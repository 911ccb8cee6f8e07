"""Ways to damage a file. Each takes its bytes and a source of chance, and gives other bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

MAX_BYTES = 1 << 20

_TOKEN = re.compile(rb"[\w$.]+|\s+|.", re.DOTALL)
_NUMBER = re.compile(rb"-?\d+")
_PIECES = (
    *(b"{", b"}", b"({", b"})", b"[", b"]", b"<", b">", b",", b":", b"=", b'"', b"\\", b"//", b"#", b"^bb0:", b"%0 = "),
    *(b"module {\n", b"tt.func @f() {\n", b"scf.yield\n", b"default {\n", b"loc(#loc)", b"#loc = loc(#loc)\n"),
    *(b'proton.record start "x"\n', b"null", b"true", b"1e999", b"NaN"),
    *(b"\0", b"\xff", b"\xed\xa0\x80", b"\r\n", b"\t"),
)
_NUMBERS = (b"-1", b"0", b"1", b"33", b"2147483648", b"9223372036854775808", b"1" + b"0" * 30, b"9" * 5000)
_REGIONS = ((b"scf.if %c {\n", b"}\n"), (b'"scf.if"(%c) ({\n', b"}) : (i1) -> ()\n"), (b"[", b"]"), (b'{"a":', b"}"))


def flip_bits(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 3, 30))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def insert_piece(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_PIECES) * chance.choice((1, 1, 1, 1_000)) + data[at:]


def change_number(data: bytes, chance: Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    place = chance.choice(found)
    return data[: place.start()] + chance.choice(_NUMBERS) + data[place.end() :]


def drop_or_double_tokens(data: bytes, chance: Random) -> bytes:
    return _drop_or_double(_TOKEN.findall(data[:MAX_BYTES]), chance)


def drop_or_double_lines(data: bytes, chance: Random) -> bytes:
    return _drop_or_double(data.splitlines(keepends=True), chance)


def cut(data: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] if chance.random() < 0.7 else data[at:]


def nest(data: bytes, chance: Random) -> bytes:
    """Put some lines into many regions."""
    opening, closing = chance.choice(_REGIONS)
    depth = chance.choice((5, 100, 5_000))
    lines = data.splitlines(keepends=True)
    first, last = sorted(chance.randrange(len(lines) + 1) for _ in range(2))
    return b"".join([*lines[:first], opening * depth, *lines[first:last], closing * depth, *lines[last:]])


MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(flip_bits, insert_piece, change_number, change_number, drop_or_double_tokens, drop_or_double_lines, cut, nest),
)


def mutated(data: bytes, chance: Random) -> bytes:
    """Return the bytes after one to three mutations."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        if data:
            data = chance.choice(MUTATIONS)(data, chance)
    return data


def _drop_or_double(pieces: list[bytes], chance: Random) -> bytes:
    first = chance.randrange(len(pieces) or 1)
    last = first + chance.choice((1, 1, 3, 20))
    return b"".join(pieces[:first] + chance.choice((0, 2)) * pieces[first:last] + pieces[last:])
