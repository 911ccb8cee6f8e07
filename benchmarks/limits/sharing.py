"""What a second CTA on each SM adds to ``kernels.py``: what a capture says of it, and what happens without it.

    python benchmarks/limits/sharing.py CAPTURES [--only NAME,...] [--rounds N]

CAPTURES is what ``record.py`` wrote. Needs a GPU. Each kernel is launched as it is, and with as much shared memory as
leaves an SM room for no more CTAs than one, and than so many as the capture compares with one; all in CUDA graphs, in
turn. Printed are the time that one takes less than several, pair by pair, with its quartiles, and the gain that the
capture saw in its loop.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import kernels
import torch
from against_ncu import launches_of
from kernels import KERNELS
from triton.compiler import CompiledKernel, make_backend
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.timeline.sharing import Sharing
from kprof_inject.timeline.timeline import decode_launch

# Of an SM of sm_90; the runtime takes a kilobyte of each CTA.
SHARED_BYTES = 227 << 10
# What graphs use has to outlive them.
KEPT: list[object] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    for name, launch in launches_of(arguments.captures).items():
        kernel = name.partition("/")[0]
        if arguments.only and kernel not in arguments.only.split(","):
            continue
        report = LaunchAnalysis.of(decode_launch(launch))
        sharing = next((scope.sharing for scope in report.summary.scopes if scope.sharing), None)
        if sharing is None:
            continue
        found = ", found" if any(finding.rule == "second-cta" for finding in report.findings) else ""
        print(f"{kernel}: {line(kernel, sharing, arguments.rounds)}{found}", flush=True)


def line(name: str, sharing: Sharing, rounds: int) -> str:
    alone, shared = (graph_of(name, SHARED_BYTES // ctas - (2 << 10)) for ctas in (1, sharing.ctas))
    pairs = [(time_ms(alone), time_ms(shared)) for _ in range(rounds)]
    gains = sorted(one / several - 1 for one, several in pairs)
    low, middle, high = statistics.quantiles(gains, n=4)
    told = f"with {sharing.ctas} CTAs on an SM {100 * middle:.1f} % more ({100 * low:.1f} to {100 * high:.1f})"
    return f"{told}; in the capture {100 * sharing.gain:.1f} %, of {sharing.alone:.0f} iterations alone"


def graph_of(name: str, shared_bytes: int) -> torch.cuda.CUDAGraph:
    """A launch of a kernel that asks for no less than so many bytes of shared memory."""
    for one in vars(kernels).values():
        if isinstance(one, JITFunction):
            one.device_caches.clear()
    with asking_for(shared_bytes):
        launch: Callable[[], object] = KERNELS[name]()
        launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
    KEPT.append(launch)
    return graph


@contextmanager
def asking_for(shared_bytes: int) -> Iterator[None]:
    plain = CompiledKernel.__init__

    def made(self: CompiledKernel, *arguments: object, **options: object) -> None:
        plain(self, *arguments, **options)
        KEPT.append(self)
        self.metadata = self.metadata._replace(shared=max(self.metadata.shared, shared_bytes))
        backend = make_backend(driver.active.get_current_target())
        self.packed_metadata = backend.pack_metadata(self.metadata)

    CompiledKernel.__init__ = made
    try:
        yield
    finally:
        CompiledKernel.__init__ = plain


def time_ms(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


if __name__ == "__main__":
    main()
