"""Ways to damage a capture, a workspace or a Proton buffer on disk: what its JSON says, which files there are, bytes.

Each says in words what it did. What is damaged can be sealed again (``reseal``), with all the checksums that a capture
carries, as only somebody who knows them would have it: so that damage reaches what stands behind them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from mutations import LARGEST_BYTES, MUTATIONS

Damage = Callable[[Path, Path, Random], str]
"""Takes the folder to damage, another of its kind that stays whole, and a source of chance."""


class RawJson(str):
    """A text that stands in JSON as it is."""


EVIL: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, 33, 65, 255, 256, 257, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 53),
    *(5e-324, 1e-320, 1e-200, 1e-30, 1e-9, -1e-320, 1 << 15, 1 << 16, -(1 << 31)),
    *((1 << 62) - 1, 1 << 62, 1 << 63, (1 << 64) - 1, 10**9, 10**18, 10**30, 1.0, 1.5, -0.0, 1e-300, 1e308),
    *(RawJson("NaN"), RawJson("Infinity"), RawJson("-Infinity"), RawJson("1e999"), RawJson("9" * 5000)),
    *(RawJson("[" * 200_000), RawJson("[" * 900 + "]" * 900), RawJson('{"a":' * 900 + "1" + "}" * 900)),
    *("", "x", ".", "..", "/", "../../canary.txt", "/etc/passwd", "a/b", "a\\b", "\x00", "\x1b[31mred", "é" * 300),
    *(RawJson('"\\ud800"'), "x" * 5000, "x" * 3_000_000, "timed", "untimed", "shared", "global", "launches.jsonl"),
    *([], [0], [1, 2], [0, -1, "x"], [[]], {}, {"a": 1}, {"": None}, ["a"] * 300, [0] * 3000),
)


def _numbers_near(value: float, chance: Random) -> Any:
    digits = str(value)
    at = chance.randrange(len(digits))
    lost = digits[:at] + digits[at + 1 :]
    return chance.choice([value + 1, value - 1, -value, value * 2, value * 1000, RawJson(lost or "0"), f"{value}"])


def change_value(folder: Path, other: Path, chance: Random) -> str:
    """One value of one JSON text becomes another."""
    path, lines, at = _json_text(folder, chance)
    values = _loaded(lines[at])
    places = list(_places(values))
    if not places:
        return f"{path.name}: nothing to change"
    holder, key = chance.choice(places)
    old = holder[key]
    near = type(old) in (int, float) and chance.random() < 0.4
    holder[key] = _numbers_near(old, chance) if near else chance.choice(EVIL)
    lines[at] = _dumped(values)
    path.write_text("\n".join(lines), errors="surrogatepass")
    return f"{path.name}: {key!r} {str(old)[:40]!r} -> {str(holder[key])[:40]!r}"


def change_keys(folder: Path, other: Path, chance: Random) -> str:
    """One key goes, is called something else, or has its value in another key's place."""
    path, lines, at = _json_text(folder, chance)
    values = _loaded(lines[at])
    holders = [holder for holder, _ in _places(values) if isinstance(holder, dict)]
    if not holders:
        return f"{path.name}: no keys"
    holder = chance.choice(holders)
    key, second = chance.choice(list(holder)), chance.choice(list(holder))
    how = chance.choice(("remove", "rename", "swap", "add"))
    if how == "remove":
        del holder[key]
    elif how == "rename":
        holder[f"{key}x"] = holder.pop(key)
    elif how == "swap":
        holder[key], holder[second] = holder[second], holder[key]
    else:
        for number in range(chance.choice((1, 300, 30_000))):
            holder[f"{number}"] = chance.choice((number, holder[key]))
    lines[at] = _dumped(values)
    path.write_text("\n".join(lines), errors="surrogatepass")
    return f"{path.name}: {how} {key!r}"


def multiply(folder: Path, other: Path, chance: Random) -> str:
    """What is in a list comes very often."""
    path, lines, at = _json_text(folder, chance)
    values = _loaded(lines[at])
    lists = [holder[key] for holder, key in _places(values) if isinstance(holder[key], list) and holder[key]]
    if not lists:
        return f"{path.name}: no lists"
    chosen = chance.choice(lists)
    times = chance.choice((2, 300, 30_000))
    chosen *= min(times, max(2, 4_000_000 // len(_dumped(chosen))))
    lines[at] = _dumped(values)
    path.write_text("\n".join(lines), errors="surrogatepass")
    return f"{path.name}: a list {times} times"


def repeat_item(folder: Path, other: Path, chance: Random) -> str:
    """One item of a list comes twice, or as another of its list."""
    path, lines, at = _json_text(folder, chance)
    values = _loaded(lines[at])
    lists = [holder[key] for holder, key in _places(values) if isinstance(holder[key], list) and holder[key]]
    if not lists:
        return f"{path.name}: no lists"
    chosen = chance.choice(lists)
    item, place = chance.choice(chosen), chance.randrange(len(chosen))
    chosen[place : place + chance.randrange(2)] = [item]
    lines[at] = _dumped(values)
    path.write_text("\n".join(lines), errors="surrogatepass")
    return f"{path.name}: an item of {len(chosen)} twice"


def move_lines(folder: Path, other: Path, chance: Random) -> str:
    """Lines go, come twice, change places, or come from another file."""
    path = chance.choice([path for path in _files(folder) if path.suffix == ".jsonl"] or _files(folder))
    lines = path.read_bytes().splitlines(keepends=True)
    theirs = [line for one in _files(other) if one.suffix == path.suffix for line in one.read_bytes().splitlines(True)]
    at = chance.randrange(len(lines) or 1)
    how = chance.choice(("remove", "repeat", "swap", "foreign", "reverse", "many"))
    if how == "remove":
        del lines[at : at + 1]
    elif how == "repeat":
        lines[at:at] = lines[at : at + 1]
    elif how == "foreign":
        lines[at:at] = [chance.choice(theirs or lines or [b"\n"])]
    elif how == "many":
        lines[at:at] = lines[at : at + 1] * 3000
    else:
        lines.reverse()
    path.write_bytes(b"".join(lines))
    return f"{path.name}: {how} line {at}"


def replace_file(folder: Path, other: Path, chance: Random) -> str:
    """A file goes, or something else stands in its place."""
    path = chance.choice(_files(folder))
    kinds = ("gone", "empty", "pipe", "folder", "link out", "link in", "device", "socket", "foreign", "own", "loop")
    how = chance.choice(kinds)
    bytes_of_own = chance.choice(_files(folder)).read_bytes()
    namesakes = [one for one in _files(other) if one.name == path.name]
    path.unlink()
    if how == "empty":
        path.write_bytes(b"")
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "link out":
        path.symlink_to(chance.choice(namesakes or [Path("/etc/passwd")]))
    elif how == "link in":
        path.symlink_to(chance.choice(_files(folder)).resolve())
    elif how == "device":
        path.symlink_to(chance.choice(("/dev/zero", "/dev/tty", "/dev/null", "/proc/self/mem")))
    elif how == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            os.chdir(path.parent)
            one.bind(path.name)
            os.chdir("/")
    elif how == "foreign" and namesakes:
        shutil.copyfile(chance.choice(namesakes), path)
    elif how == "own":
        path.write_bytes(bytes_of_own)
    elif how == "loop":
        path.symlink_to(path.name)
    return f"{path.relative_to(folder)}: {how}"


def replace_folder(folder: Path, other: Path, chance: Random) -> str:
    """A folder goes, comes twice, comes from another capture, or is a link."""
    folders = [path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()]
    path = chance.choice(folders)
    how = chance.choice(("gone", "twice", "foreign", "link out", "file", "link up"))
    theirs = [one for one in other.rglob("*") if one.is_dir() and len(one.parts) == len(path.parts)]
    if how == "twice":
        with contextlib.suppress(shutil.Error, FileExistsError):
            shutil.copytree(path, path.with_name(f"{path.name}-copy"), symlinks=True)
    elif how == "foreign" and theirs:
        one = chance.choice(theirs)
        with contextlib.suppress(shutil.Error):  # what was damaged before may be in the way
            shutil.copytree(one, path.with_name(one.name), dirs_exist_ok=True, symlinks=True)
    else:
        shutil.rmtree(path)
    if how == "link out":
        path.symlink_to(chance.choice(theirs or [other]))
    elif how == "file":
        path.write_bytes(b"{}\n")
    elif how == "link up":
        path.symlink_to(folder)
    return f"{path.relative_to(folder)}/: {how}"


def flip_bits(folder: Path, other: Path, chance: Random) -> str:
    path = chance.choice(_files(folder))
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 3, 30, 3000)) if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return f"{path.name}: bits flipped"


def cut_or_extend(folder: Path, other: Path, chance: Random) -> str:
    path = chance.choice(_files(folder))
    data = path.read_bytes()
    at = chance.randrange(len(data) + 1)
    noise = chance.randbytes(1000)
    piece = chance.choice((b"", b"\0" * 128, noise, data[:100], b"\xff\xfe", b"\n", b"{}\n", b"[" * 10**6))
    path.write_bytes(chance.choice((data[:at], data[at:], data[:at] + piece + data[at:], data + piece, piece)))
    return f"{path.name}: cut or extended at {at}"


def change_words(folder: Path, other: Path, chance: Random) -> str:
    """Words of a buffer become others of it, or change a bit, so that records stay what records look like."""
    buffers = [path for path in _files(folder) if path.suffix in (".bin", ".npy")]
    if not buffers:
        return "no buffers"
    path = chance.choice(buffers)
    data = bytearray(path.read_bytes())
    begin = 128 if path.suffix == ".npy" else 0
    size = chance.choice((4, 8, 8, 8))
    for _ in range(chance.choice((1, 3, 30, 300))):
        count = (len(data) - begin) // size
        if count <= 0:
            break
        at, source = (begin + size * chance.randrange(count) for _ in range(2))
        if chance.random() < 0.5:
            data[at : at + size] = data[source : source + size]
        else:
            data[at + chance.randrange(size)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return f"{path.name}: words changed"


def change_ttgir(folder: Path, other: Path, chance: Random) -> str:
    """A module becomes another text, or says another number."""
    modules = [path for path in _files(folder) if path.suffix == ".ttgir"]
    if not modules:
        return "no modules"
    path = chance.choice(modules)
    data = path.read_bytes()
    if chance.random() < 0.5 and (numbers := list(_NUMBER.finditer(data))):
        for found in sorted(
            chance.sample(numbers, min(len(numbers), chance.choice((1, 3, 10)))), key=lambda n: -n.start()
        ):
            data = data[: found.start()] + chance.choice(_NUMBERS) + data[found.end() :]
    elif data:
        data = chance.choice(MUTATIONS)(data, chance, [data])[:LARGEST_BYTES]
    path.write_bytes(data)
    return f"{path.name}: another text"


_NUMBER = re.compile(rb"(?<![\w.#%])\d+")
_NUMBERS = (b"0", b"1", b"2", b"3", b"7", b"-1", b"33", b"4096", b"400000000", b"2147483648", b"9223372036854775808")

TYPED: tuple[Damage, ...] = (change_value, change_value, change_value, change_keys, multiply, repeat_item)
STRUCTURAL: tuple[Damage, ...] = (move_lines, replace_file, replace_file, replace_folder)
BINARY: tuple[Damage, ...] = (flip_bits, cut_or_extend, change_words, change_words)
TEXTUAL: tuple[Damage, ...] = (change_ttgir,)


def damaged(folder: Path, other: Path, chance: Random, reseals: bool) -> list[str]:
    """Damage a folder, or one file, once to three times, and seal it again if ``reseals``; says how."""
    kinds = (TYPED, TYPED, STRUCTURAL, BINARY, TEXTUAL) if folder.is_dir() else (BINARY,)
    done: list[str] = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if _files(folder):
            done.append(chance.choice(chance.choice(kinds))(folder, other, chance))
    if reseals:
        reseal(folder)
    return done


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return [folder]
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _json_text(folder: Path, chance: Random) -> tuple[Path, list[str], int]:
    """A file, its JSON texts, and which of them."""
    path = chance.choice([path for path in _files(folder) if path.suffix in (".json", ".jsonl")])
    text = path.read_text(errors="replace")
    lines = text.split("\n") if path.suffix == ".jsonl" else [text]
    return path, lines, chance.randrange(max(1, len(lines) - 1))


def _loaded(text: str) -> Any:
    try:
        is_deep = len(text) > 8_000_000 or "[" * 100 in text or '{"a":' * 50 in text
        return {} if is_deep else json.loads(text)
    except (ValueError, RecursionError):
        return {}


def _places(values: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    rest = [values]
    while rest:
        holder = rest.pop()
        if isinstance(holder, dict | list):
            for key in holder if isinstance(holder, dict) else range(len(holder)):
                if not str(key).endswith("crc32"):
                    found.append((holder, key))
                    rest.append(holder[key])
    return found


def _dumped(values: Any) -> str:
    """With the raw texts in it as they are."""
    raw: list[str] = []

    def marked(value: Any) -> Any:
        if isinstance(value, RawJson):
            raw.append(value)
            return f"@raw{len(raw) - 1}@"
        if isinstance(value, dict):
            return {key: marked(part) for key, part in value.items()}
        return [marked(part) for part in value] if isinstance(value, list) else value

    text = json.dumps(marked(values), ensure_ascii=False)
    return re.sub(r'"@raw(\d+)@"', lambda found: raw[int(found[1])], text)


def reseal(folder: Path) -> None:
    """Give every file of the captures in a folder the checksums that fit, where it had some: also those of buffers,
    modules and sources, and the numbers of lines."""
    for process in _files(folder):
        text = _text_of(process)
        if process.name == "process.json" and '"crc32"' in text:
            process.write_text(_sealed(text, "process.json"), errors="surrogateescape")
            _reseal_process(process.parent, f"{_loaded(text).get('process')}")


def _reseal_process(home: Path, name: str) -> None:
    files = _files(home)
    for path in files:
        of = f"{name}/{path.relative_to(home)}"
        text = _text_of(path)
        if path.name == "kernel.json":
            for key, file in (("ttgir_crc32", "kernel.ttgir"), ("sources_crc32", "sources.json")):
                text = _with_crc32(text, key, path.with_name(file), files)
        if path.suffix == ".json" and path.name != "process.json":
            path.write_text(_sealed(text, of), errors="surrogateescape")
        elif path.suffix == ".jsonl":
            lines = []
            for number, line in enumerate(text.splitlines(), 1):
                if found := re.search(r'"file":\s*"([^"/]+)"', line):
                    line = _with_crc32(line, "buffer_crc32", home / found[1], files)
                line = re.sub(r'"line":\s*\d+', f'"line":{number}', line)
                lines.append(_sealed(line, of).rstrip("\n"))
            path.write_text("".join(f"{line}\n" for line in lines), errors="surrogateescape")


def _text_of(path: Path) -> str:
    return path.read_text(errors="surrogateescape") if path.suffix in (".json", ".jsonl") else ""


def _with_crc32(text: str, key: str, of: Path, files: list[Path]) -> str:
    return re.sub(rf'"{key}":\s*\d+', f'"{key}":{zlib.crc32(of.read_bytes())}', text) if of in files else text


def _sealed(text: str, of: str) -> str:
    """With the checksum that fits as its last member, where it had one."""
    if not re.search(r'"crc32":\s*\d+\s*\}\s*$', text):
        return text
    body = re.sub(r',?\s*"crc32":\s*\d+\s*\}\s*$', "", text)
    crc = zlib.crc32(body.encode(errors="surrogateescape"), zlib.crc32(of.encode(errors="replace")))
    return f'{body},"crc32":{crc}}}\n'
