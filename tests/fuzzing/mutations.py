"""Ways to damage a TTGIR file. Each takes the bytes, a source of chance and the corpus, and gives other bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

Mutation = Callable[[bytes, Random, Sequence[bytes]], bytes]

LARGEST_BYTES = 1 << 20

_TOKEN = re.compile(rb"[\w$.]+|\s+|.", re.DOTALL)

PIECES = (
    *(b"{", b"}", b"} else {", b"}, {", b"})", b"({", b"(", b")", b"[", b"]", b"<", b">", b",", b":", b"=", b"->"),
    *(b'"', b"\\", b'\\"', b"'", b"//", b" // {", b' // "', b"/", b"#", b"!", b"{-#", b"#-}", b"^bb0:", b"^bb1(%x: i1"),
    *(b"%0 = ", b"%a, ", b"@kernel", b"module {\n", b"tt.func @f() {\n", b"tt.return\n", b"scf.yield\n", b"else {\n"),
    *(b"default {\n", b"partition0() num_warps(4) {\n", b"case 1 {\n", b"do {\n", b"attributes {a = 1}", b"loc(#loc)"),
    *(b'proton.record start "x"\n', b'loc("a.py":1:2)', b"#loc = loc(#loc)\n", b"loc(callsite(#loc1 at #loc1))"),
    *(b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\t", b"\x0c"),
)


def flip_bytes(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 3, 30))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def insert_pieces(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    for _ in range(chance.choice((1, 2, 5))):
        at = chance.randrange(len(data) + 1)
        data = data[:at] + chance.choice(PIECES) + data[at:]
    return data


def drop_or_double_tokens(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    return _drop_or_double(_TOKEN.findall(data), chance)


def drop_or_double_lines(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    return _drop_or_double(data.splitlines(keepends=True), chance)


def swap_lines(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(chance.choice((1, 2, 10))):
        one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def splice(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    """Lines of another file in the place of some of this one's."""
    ours, theirs = data.splitlines(keepends=True), chance.choice(corpus).splitlines(keepends=True)
    first, count = chance.randrange(len(ours)), chance.choice((0, 1, 10))
    start = chance.randrange(len(theirs))
    taken = theirs[start : start + chance.choice((1, 5, 50))]
    return b"".join([*ours[:first], *taken, *ours[first + count :]])


def cut(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] if chance.random() < 0.7 else data[at:]


def repeat_piece(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    """One piece over and over: huge lines, runs of comments, unending strings."""
    piece = chance.choice(PIECES) + chance.choice((b"", b" ", b"\n", b"x"))
    at = chance.randrange(len(data) + 1)
    return data[:at] + piece * chance.choice((50, 1_000, 20_000)) + data[at:]


def nest(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    """Some lines inside of many regions."""
    opening, closing = chance.choice(
        (
            (b"scf.if %c {\n", b"}\n"),
            (b"scf.for %i = %a to %b step %c : i32 {\n", b"}\n"),
            (b'"scf.if"(%c) ({\n', b"}) : (i1) -> ()\n"),
            (b"ttg.warp_specialize()\ndefault {\n", b"} : () -> ()\n"),
            (b"module {\n", b"}\n"),
        )
    )
    depth = chance.choice((5, 100, 500, 5_000))
    lines = data.splitlines(keepends=True)
    first, last = sorted(chance.randrange(len(lines) + 1) for _ in range(2))
    return b"".join([*lines[:first], opening * depth, *lines[first:last], closing * depth, *lines[last:]])


def mix_line_ends(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    ends = chance.choice(((b"\r\n",), (b"\n", b"\r\n"), (b"\n", b"\r"), (b"\n\n", b"\n \t\n"), (b"", b"\n")))
    return b"".join(line + chance.choice(ends) for line in data.splitlines())


def join_lines(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    """Operations that share a line, with a blank between them or nothing."""
    often, blank = chance.choice((0.01, 0.3, 1)), chance.choice((b" ", b"", b"\t "))
    lines = data.splitlines(keepends=True)
    return b"".join(line.strip() + blank if chance.random() < often and b"//" not in line else line for line in lines)


def change_indents(data: bytes, chance: Random, corpus: Sequence[bytes]) -> bytes:
    indents = chance.choice(((b"",), (b"\t",), (b"", b" ", b"\t \t", b"        ")))
    return b"\n".join(chance.choice(indents) + line.lstrip() for line in data.split(b"\n"))


MUTATIONS: tuple[Mutation, ...] = (
    flip_bytes,
    insert_pieces,
    insert_pieces,
    drop_or_double_tokens,
    drop_or_double_lines,
    swap_lines,
    splice,
    cut,
    repeat_piece,
    nest,
    mix_line_ends,
    change_indents,
    join_lines,
)


def mutated(corpus: Sequence[bytes], chance: Random) -> bytes:
    """A file of the corpus after up to four mutations. A few files stay whole, to try what they hold."""
    data = chance.choice(corpus)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 4))):
        if data:
            data = chance.choice(MUTATIONS)(data, chance, corpus)[:LARGEST_BYTES]
    return data


def _drop_or_double(pieces: list[bytes], chance: Random) -> bytes:
    for _ in range(chance.choice((1, 2, 5))):
        first = chance.randrange(len(pieces) or 1)
        last = first + chance.choice((1, 1, 3, 20))
        pieces = pieces[:first] + chance.choice((0, 2)) * pieces[first:last] + pieces[last:]
    return b"".join(pieces)
