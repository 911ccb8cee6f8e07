"""Programs under ``profile --try`` print, compute, allocate and end as alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from program_runs import PROGRAMS, ProgramRuns

# Each prints what torch's allocator took, if it is of seldom.py.
WAYS = ("once", "thrice", "graph", "warmed_graph", "autotuned", "inductor", "in_place", "counting", "locking")
MORE_WAYS = ("pointers", "descriptor", "view", "self_timed")
KINDS: dict[str, Sequence[str]] = {
    **{way: ("seldom.py", "--way", way) for way in (*WAYS, *MORE_WAYS)},
    "five kernels": ("five_kernels.py",),
    "Gluon": ("gluon_scale.py",),
    "three processes": ("workers.py",),
    "warp-specialised": ("specialised.py",),
}


def test_programs_print_compute_allocate_and_end_as_alone(tmp_path: Path) -> None:
    """They run at once, as their times do not matter."""
    with ExitStack() as stack:
        started = []
        for number, (name, *arguments) in enumerate(KINDS.values()):
            folder = tmp_path / str(number)
            folder.mkdir()
            runs = stack.enter_context(ProgramRuns(folder))
            program = (PROGRAMS / name, *arguments, "--save")
            plain = runs.start(*program, folder / "plain.npy")
            started.append((folder, plain, runs.start_kprof("profile", "--try", "--", *program, folder / "with.npy")))
        for kind, (folder, plain, profiled) in zip(KINDS, started, strict=True):
            alone, ended = plain.wait(exit_code=None), profiled.wait(exit_code=None)
            assert (kind, ended.exit_code) == (kind, alone.exit_code), ended
            assert not alone.stdout or ended.stdout.count(alone.stdout) == 1, f"{kind}: {alone} {ended}"
            expected, result = (np.load(folder / name) for name in ("plain.npy", "with.npy"))
            assert expected.tobytes() == result.tobytes(), f"{kind}: {ended}"
            news = [line for line in ended.stdout.splitlines() if "faster" in line or "not tried" in line]
            print(f"{kind}: {alone.stdout.splitlines()[-1:]}; {'; '.join(news)[:200]}")
