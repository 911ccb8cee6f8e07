"""Damaged saved launches: each is refused with a word, at once, without a look outside of its folder or a launch."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from damage import TYPED
from fake_gpu.repeating import OwnProcessHere, own_process_here
from launch_files import read_all, reseal

from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.errors import KprofError

SECONDS = 10


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnProcessHere]:
    with own_process_here(tmp_path_factory.mktemp("tasks")) as made:
        yield made


class TookTooLong(BaseException):
    """Not an ``Exception``, which a process of ours would take for a failure of its task."""


@contextmanager
def at_once() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


_opened: list[str] | None = None


def _note_open(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str | bytes):
        _opened.append(os.path.realpath(os.fsdecode(arguments[0])))


# Python cannot remove it again.
sys.addaudithook(_note_open)


@contextmanager
def reading_only(folder: Path) -> Iterator[list[str]]:
    """Fail if a file outside of the folder is opened; the context has what was opened."""
    global _opened
    _opened = found = []
    try:
        yield found
    finally:
        _opened = None
    assert [path for path in found if not Path(path).is_relative_to(os.path.realpath(folder))] == []


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def refused(folder: Path, process: OwnProcessHere) -> None:
    """Fail unless the launch is refused wherever it is read, and nothing of it is written to the device."""
    with at_once(), reading_only(folder), pytest.raises(KprofError):
        read_all(folder)
    before = len(process.gpu.ran)
    with at_once():
        result = process.time(folder)
    assert result.refusal
    assert len(process.gpu.ran) == before, "a launch that was damaged came to the device"


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "short of two bytes": lambda path: os.truncate(path, path.stat().st_size - 2),
    "without its first byte": lambda path: path.write_bytes(path.read_bytes()[1:]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: replaced(path, Path.mkdir),
    "a pipe": lambda path: replaced(path, os.mkfifo),
    "a socket": lambda path: replaced(path, make_socket),
    "a link to the same out of the folder": lambda path: linked_out(path),
    "a link to another file": lambda path: replaced(path, lambda link: link.symlink_to("/etc/hostname")),
    "a link to itself": lambda path: replaced(path, lambda link: link.symlink_to(link.name)),
    "a link to nothing": lambda path: replaced(path, lambda link: link.symlink_to("missing")),
    "a device": lambda path: replaced(path, lambda link: link.symlink_to("/dev/zero")),
    "the terminal": lambda path: replaced(path, lambda link: link.symlink_to("/dev/tty")),
    "the process's memory": lambda path: replaced(path, lambda link: link.symlink_to("/proc/self/mem")),
}


def linked_out(path: Path) -> None:
    outside = path.parents[2] / f"outside-{path.name}"
    path.rename(outside)
    path.symlink_to(outside)


@pytest.mark.parametrize("how", DAMAGE)
def test_each_file_is_checked(
    scale_launch_once: Path, tmp_path: Path, process: OwnProcessHere, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    for number, path in enumerate(files_of(scale_launch_once)):
        folder = Path(shutil.copytree(scale_launch_once, tmp_path / str(number) / "x.launch"))
        DAMAGE[how](folder / path.relative_to(scale_launch_once))
        refused(folder, process)


def test_files_that_change_places_are_noticed(scale_launch: Path, process: OwnProcessHere) -> None:
    swaps = 0
    for one, other in combinations(files_of(scale_launch), 2):
        if one.read_bytes() == other.read_bytes():
            continue  # Triton's source is its TTIR here
        for _ in range(2):
            aside = scale_launch.parent / "aside"
            one.rename(aside)
            other.rename(one)
            aside.rename(other)
            if (swaps := swaps + 1) % 2:
                refused(scale_launch, process)
    assert swaps > 50
    read_all(scale_launch)


def test_a_build_elsewhere_is_not_loaded(scale_launch: Path, process: OwnProcessHere) -> None:
    build = scale_launch / "build"
    build.rename(scale_launch.parent / "build")
    build.symlink_to(scale_launch.parent / "build")
    refused(scale_launch, process)


FLIPS = 300


def flips(launch: Path) -> list[tuple[str, int]]:
    return [(str(path.relative_to(launch)), bit) for path in files_of(launch) for bit in range(8 * path.stat().st_size)]


def assert_flips_are_noticed(launch: Path, chosen: list[tuple[str, int]]) -> None:
    for name, bit in chosen:
        path = launch / name
        data = path.read_bytes()
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(KprofError):
            read_all(launch)
        path.write_bytes(data)


def test_a_bit_that_flips_is_noticed(scale_launch: Path) -> None:
    every = flips(scale_launch)
    in_record = [flip for flip in every if flip[0] == "launch.json"]
    chance = Random(1)
    assert_flips_are_noticed(scale_launch, chance.sample(every, FLIPS) + chance.sample(in_record, FLIPS))


@pytest.mark.exhaustive
def test_every_bit_that_flips_is_noticed(scale_launch: Path) -> None:
    assert_flips_are_noticed(scale_launch, flips(scale_launch))


# Damage that is sealed again: what makes sense of it is repeated, and the rest is refused.


def check_sealed_damage(launch: Path, folder: Path, process: OwnProcessHere, number: int) -> bool:
    """Change some values, seal the launch, and use it; return whether it was refused."""
    chance = Random(number)
    place = Path(shutil.copytree(launch, folder / f"{number}.launch"))
    how = [chance.choice(TYPED)(place, launch, chance) for _ in range(chance.choice((1, 1, 2)))]
    with suppress(Exception):  # what no longer is a record has no checksums to correct
        reseal(place)
    try:
        with at_once():
            is_refused = is_refused_at(place)
            with suppress(KprofError):  # of times that JSON cannot hold, which a device does not have
                process.time(place)
    except BaseException as error:
        error.add_note(f"{number}: {how}")
        raise
    finally:
        shutil.rmtree(place)
    return is_refused


def is_refused_at(place: Path) -> bool:
    try:
        read_saved_launch(place)
    except KprofError:
        return True
    return False


def test_what_is_sealed_again_is_refused_or_repeated(
    scale_launch_once: Path, tmp_path: Path, process: OwnProcessHere
) -> None:
    refusals = [check_sealed_damage(scale_launch_once, tmp_path, process, number) for number in range(60)]
    assert 5 < sum(refusals) < 50


@pytest.mark.exhaustive
def test_much_that_is_sealed_again_is_refused_or_repeated(
    scale_launch_once: Path, tmp_path: Path, process: OwnProcessHere
) -> None:
    for number in range(60, 3000):
        check_sealed_damage(scale_launch_once, tmp_path, process, number)


def test_without_damage_it_is_repeated(scale_launch: Path, process: OwnProcessHere) -> None:
    """The other tests would find refusals anywhere if it were not."""
    with at_once(), reading_only(scale_launch) as opened:
        assert not is_refused_at(scale_launch)
        assert len(read_all(scale_launch)) == 128
    assert {*map(str, files_of(scale_launch))} <= {*opened}
    before = len(process.gpu.ran)
    result = process.time(scale_launch)
    assert result.refusal == ""
    assert len(process.gpu.ran) == before + 3 + 1  # see test_loaded_launch
