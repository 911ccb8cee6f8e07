"""Other profilers' buffers, written on the device, against a plain loop over their words and their own trace."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from gpu_support import Kprof

import kprof_inject
from kprof_inject.results import Results

PROGRAM = Path(__file__).with_name("programs") / "other_profilers.py"
CTAS, ROUNDS = 24, 5
NAMES = ["whole", "load", "work"]


def ran(results: Results) -> Counter[tuple[int, str, int, int]]:
    rows = results.timeline.scopes[["cta", "scope", "start_ns", "end_ns"]].tolist()
    names = [scope.name for scope in results.timeline.table.scopes]
    return Counter((cta, names[scope], start, end) for cta, scope, start, end in rows)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([sys.executable, str(PROGRAM), str(folder)], check=True)
    return folder


def test_triton_distributeds_layout_is_read_word_by_word(saved: Path, kprof: Kprof) -> None:
    words = np.load(saved / "distributed.npy").astype(np.int64).tolist()
    opened: dict[tuple[int, int], int] = {}
    expected: Counter[tuple[int, str, int, int]] = Counter()
    for word in words[1 + CTAS :]:
        if word == -1:
            continue
        tag, ns = word & 0xFFFFFFFF, word >> 32 & 0xFFFFFFFF
        block, task = tag >> 12, tag >> 1 & 0x7FF
        if tag & 1:
            opened[block, task] = ns
        else:
            expected[block, NAMES[task], opened.pop((block, task)), ns] += 1
    results = kprof_inject.read_buffer(saved / "distributed.npy", format="triton-distributed", names=NAMES)
    assert expected.total() == CTAS * (1 + 2 * ROUNDS)
    assert ran(results) == expected
    assert results.timeline.ctas["sm"].tolist() == [word >> 32 for word in words[1 : 1 + CTAS]]
    options = ("--buffer-format", "triton-distributed", "--names", ",".join(NAMES))
    assert f"{CTAS} CTAs, 1 group" in kprof("report", saved / "distributed.npy", *options).stdout
