"""When a trace of a capture is taken again, and when it is not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kprof_inject
from kprof_inject.viewing.made_of import made_of, remember, state_of
from kprof_inject.viewing.trace_to_show import Slice, TraceToShow

DEMO = Path(kprof_inject.__file__).parent / "demo/capture"
LAUNCH = Slice(138_621, 14_272)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DEMO, tmp_path / "001"))


@pytest.fixture
def trace(tmp_path: Path, capture: Path) -> Path:
    """One that was made of the capture."""
    path = tmp_path / "view.pftrace"
    path.write_bytes(b"a trace")
    remember(TraceToShow(path, LAUNCH), state_of(capture))
    return path


def test_a_trace_of_this_capture_is_taken_again(trace: Path, capture: Path) -> None:
    assert made_of(trace, state_of(capture)) == TraceToShow(trace, LAUNCH)


def test_a_trace_may_open_on_nothing(trace: Path, capture: Path) -> None:
    remember(TraceToShow(trace), state_of(capture))
    assert made_of(trace, state_of(capture)) == TraceToShow(trace)


@pytest.mark.parametrize(
    "note", ["", "null", "[1]", '{"opens_on": null}', '{"opens_on": ["x", 1]}', '{"opens_on": [1]}']
)
def test_a_trace_with_a_note_of_others_is_not_taken(trace: Path, capture: Path, note: str) -> None:
    next(trace.parent.glob(".view*")).write_text(note)
    assert made_of(trace, state_of(capture)) is None


def test_what_lies_beside_a_capture_is_not_its(trace: Path, capture: Path) -> None:
    (capture / "trace.json").write_text("{}")
    assert made_of(trace, state_of(capture))


def keep_times(old: Path, new: Path) -> None:
    status = old.stat()
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_an_equally_old_one(buffer: Path) -> None:
    other = buffer.with_name("other")
    other.write_bytes(bytes(buffer.stat().st_size))
    keep_times(buffer, other)
    other.replace(buffer)


@pytest.mark.parametrize(
    "change",
    [
        lambda buffer: buffer.write_bytes(b"other"),
        lambda buffer: os.utime(buffer, ns=(0, 0)),
        lambda buffer: buffer.unlink(),
        lambda buffer: buffer.rename(buffer.with_name("launch-000007.bin")),
        lambda buffer: shutil.copy2(buffer, buffer.with_name("launch-000007.bin")),
        lambda buffer: (buffer.parents[1] / "record_costs.json").write_text("{}"),
        lambda buffer: shutil.copytree(buffer.parent, buffer.parents[1] / "another process"),
        replace_by_an_equally_old_one,
    ],
)
def test_a_changed_capture_is_another(trace: Path, capture: Path, change: Callable[[Path], object]) -> None:
    change(next(capture.glob("*/launch-*.bin")))
    assert not made_of(trace, state_of(capture))


def test_a_capture_that_replaces_a_later_one_is_another(trace: Path, capture: Path) -> None:
    """As after ``rm -r`` of the last capture, or ``cp -a`` and ``rsync`` over it."""
    shutil.rmtree(capture)
    shutil.copytree(DEMO, capture)
    for file in capture.rglob("*"):
        os.utime(file, ns=(0, 0))
    assert not made_of(trace, state_of(capture))


def test_a_trace_that_was_changed_is_not_taken(trace: Path, capture: Path) -> None:
    trace.write_bytes(b"of yours")
    assert not made_of(trace, state_of(capture))


def test_a_trace_without_a_note_or_a_note_without_a_trace_is_not_taken(trace: Path, capture: Path) -> None:
    note = next(trace.parent.glob(".view*"))
    text = note.read_bytes()
    note.unlink()
    assert not made_of(trace, state_of(capture))
    note.write_bytes(text)
    assert made_of(trace, state_of(capture))
    trace.unlink()
    assert not made_of(trace, state_of(capture))


def test_a_trace_of_another_version_is_not_taken(trace: Path, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kprof_inject.viewing.made_of.__version__", "another")
    assert not made_of(trace, state_of(capture))
