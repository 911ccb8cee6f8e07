"""Sampling a whole program shows all of its kernels, and the program does not notice."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from gpu_support import EXAMPLES, ROOT, Kprof
from program_runs import PROGRAMS, Ended, Running

from kprof_inject.capture.program_samples import ProgramSamplesRecord
from kprof_inject.runtime.counters.permission import is_permitted
from kprof_inject.workspace import Workspace

pytestmark = pytest.mark.skipif(not is_permitted(), reason="this user may not read the counters")

TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port")
PROGRAMS_TO_SAMPLE: dict[str, tuple[str, ...]] = {
    "replayed_graph": ("replayed_graph.py",),
    "autotuned": ("autotuned_matmul.py",),
    "inductor": ("compiled_block.py",),
    "inductor with graphs": ("compiled_block.py", "--mode", "reduce-overhead"),
    "threads": ("two_streams.py", "--threads"),
    "forked workers": ("workers.py", "--method", "fork"),
    "spawned workers": ("workers.py", "--method", "spawn"),
    "two ranks on one GPU": (*TORCHRUN, "29541", "ranks.py"),
    "torch.profiler active": ("profiled_step.py",),
    "server": ("server.py",),
    "gluon": ("gluon_scale.py",),
    "all kinds of launches": ("launch_kinds.py",),
    "exception": ("ending.py", "--ending", "exception"),
    "device fault": ("ending.py", "--ending", "device-fault"),
}
WITHOUT_RESULTS = {"server", "all kinds of launches"}


def run(folder: Path, way: str, name: str, *before: str) -> tuple[Ended, list[bytes]]:
    """Run a program, after the words ``before``; return how it ended, and its results."""
    home = folder / way
    home.mkdir()
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"), "HOME": str(home)}
    words = [str(PROGRAMS / word) if word.endswith(".py") else word for word in PROGRAMS_TO_SAMPLE[name]]
    save = [] if name in WITHOUT_RESULTS else ["--save", "results.npy"]
    command = [*before, sys.executable, *words, *save]
    ended = Running(command, home, {**os.environ, **caches, "PYTHONPATH": path}).wait(exit_code=None)
    return ended, [file.read_bytes() for file in sorted(home.glob("results*.npy"))]


def said(text: str) -> list[str]:
    """Return a program's output, without what differs between two bare runs: process numbers, addresses, times."""
    text = re.sub(
        r"best_config.*|0x[0-9a-f]+|pid[ =:]*\d+|process \d+|\[?\d{4}-\d\d-\d\d[^]]*\]?|\d+\.\d+ ?[mu]?s\b", "…", text
    )
    return [line for line in text.splitlines() if not line.startswith("kprof-inject:")]


@pytest.mark.parametrize("name", PROGRAMS_TO_SAMPLE)
def test_a_sampled_program_is_what_it_is_bare(tmp_path: Path, name: str) -> None:
    ours = (sys.executable, "-m", "kprof_inject", "dump", "--sample-program", "-o", str(tmp_path / "workspace"), "--")
    bare, bare_results = run(tmp_path, "bare", name)
    sampled, results = run(tmp_path, "sampled", name, *ours)
    assert sampled.exit_code == bare.exit_code, sampled
    assert said(sampled.stdout) == said(bare.stdout), sampled
    assert results == bare_results
    assert bool(results) == (name not in WITHOUT_RESULTS)
    records = Workspace(tmp_path / "workspace").program_samples()
    print(name, [(record.processes, len(record.kernels), record.not_sampled) for record in records])
    assert sampled.exit_code or any(kernels(record) for record in records), sampled


def kernels(record: ProgramSamplesRecord) -> Sequence[str]:
    return [kernel.name for kernel in record.kernels if sum(kernel.reasons.values())]


def test_the_report_has_all_kernels_of_the_program(kprof: Kprof, tmp_path: Path) -> None:
    ended = kprof("profile", "-o", "sampled", "--sample-program", "--", sys.executable, EXAMPLES / "matmul.py")
    print(ended.stdout)
    assert "sampled kernel" in ended.stdout
    (launch,) = json.loads(kprof("report", "sampled", "--json").stdout)
    samples = launch["program"]["samples"]
    assert 0 < samples["share"] <= 1
    assert sum(samples["reasons"].values()) > 200
    (capture,) = (tmp_path / "sampled" / "captures").iterdir()
    record = json.loads((capture / "program_samples.json").read_text())
    (ours,) = [kernel for kernel in record["kernels"] if kernel.get("variant")]
    assert ours["instructions"]
    assert len(record["kernels"]) > 1
