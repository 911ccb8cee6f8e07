"""A launch's figures from its headers alone, of many launches at once, are those of the decoded launch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from replacing import replace

from kprof_inject.capture.buffer_layouts import HEADER_WORDS, LAYOUTS, LaunchHeaders
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.errors import KprofError
from kprof_inject.timeline.captures import headers_of
from kprof_inject.timeline.records import read_raw
from kprof_inject.timeline.timeline import decode_together
from kprof_inject.timeline.waves import launch_duration_ns

REPO = Path(__file__).resolve().parents[2]
CAPTURES = [
    *(REPO / "kprof_inject/demo/captures" / name for name in ("attention", "one-stage", "three-stages")),
    *sorted((REPO / "tests/captures").iterdir()),
]
Result = LaunchHeaders | KprofError | None


def of_decoded(launches: Sequence[Launch]) -> list[Result]:
    """The figures of the decoded launches; none where no timer was read."""
    figures: list[Result] = []
    for launch, timeline in zip(launches, decode_together(launches), strict=True):
        if isinstance(timeline, KprofError):
            figures.append(timeline)
        elif not read_raw(launch).timed:
            figures.append(None)
        else:
            lost, damaged = timeline.records_lost, timeline.ctas_damaged
            figures.append(LaunchHeaders(launch_duration_ns(timeline), lost, damaged))
    return figures


def texts(figures: Sequence[Result]) -> list[str]:
    return [repr(one) for one in figures]


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_they_are_those_of_each_decoded_launch(capture: Path) -> None:
    launches = read_capture(capture).launches
    found = headers_of(launches)
    assert all(isinstance(one, LaunchHeaders) and one.duration_ns > 0 for one in found)
    assert texts(found) == texts(of_decoded(launches))


def damaged(launch: Launch, folder: Path, random: np.random.Generator) -> Launch:
    """The launch with some words of its ends and headers changed, in a file of its own."""
    raw = np.fromfile(launch.path, "<u4")
    ends_words = launch.sample.ends_bytes // 4 if launch.sample else 0
    rows = raw[ends_words:].reshape(-1, launch.kernel.stride_bytes // 4)
    at_row = random.integers(0, len(rows), random.integers(0, 4))
    words = LAYOUTS[launch.kernel.layout].header_words(launch.kernel.num_warps)
    at_word = np.where(random.random(len(at_row)) < 0.3, HEADER_WORDS + 1, random.integers(0, words, len(at_row)))
    rows[at_row, at_word] ^= np.uint32(1) << random.integers(0, 32, len(at_row)).astype(np.uint32)
    choice = random.random()
    if ends_words and choice < 0.4:
        raw[random.integers(0, ends_words, 3)] = random.integers(0, 1 << 32, 3)
    if choice > 0.8:
        rows[at_row[:1]] = 0  # as if the CTA had never run
    if choice > 0.95:
        rows[:] = 0
    if choice < 0.03:
        raw = raw[:-1]
    file = f"{launch.file}.{random.integers(1 << 60)}"
    raw.tofile(folder / file)
    process = replace(launch.process, folder=folder, capture_folder=None)
    return replace(launch, process=process, file=file, buffer_crc32=None)


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_they_are_those_of_damaged_launches_too(capture: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(len(capture.name))
    captured = read_capture(capture).launches
    launches = min(captured, key=lambda launch: launch.buffer_bytes), captured[-1]
    copies = [damaged(launches[number % 2], tmp_path, random) for number in range(150)]
    found = headers_of(copies)
    assert texts(found) == texts(of_decoded(copies))
    assert len(set(texts(found))) > 20


def test_rows_in_another_order_and_rows_that_never_ran_need_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kprof_inject.timeline.captures.read_raw", None)
    (launch, *_) = read_capture(REPO / "tests/captures/matmul").launches
    ends, words = launch.ends_and_words()
    expected = headers_of([launch])
    swapped = words[np.roll(np.arange(len(words)), 1)]
    monkeypatch.setattr(Launch, "ends_and_words", lambda _launch: (ends, swapped))
    assert headers_of([launch]) == expected
    swapped[1, 0] = 0
    (without,) = headers_of([launch])
    assert isinstance(without, LaunchHeaders) and without.ctas_damaged == 0
