"""Which part of a record's lowering costs what: kernels with parts of it taken out again. Needs a GPU.

    python benchmarks/overhead_parts.py [--kernel NAME]... [--at SELECTOR]... [--rounds N]

Each form is the machine code of the same TTGIR, without some parts of the PTX: what those kernels record is of no
use, and what they compute is right. All forms of a kernel are replayed in turn, as in ``overhead.py``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from overhead import EVERYTHING, FORMS, KERNELS, Form, measure
from triton.backends.nvidia.compiler import CUDABackend

Cut = Callable[[str], str]

# What the header begins with: Proton's preamble, 0xdeadbeef.
_PREAMBLE = "-559038737"
_TIMER = re.compile(r"(mov\.u64\s+%rd\d+), %globaltimer;")
_CLOCK = re.compile(r"mov\.u32 (%r\d+), %clock(?:_hi)?;")
_STORE = re.compile(r"@%p\d+ st\.shared\.v2\.b32[^;]*;")
_BRANCH = re.compile(r"@%p\d+ bra\s+(\$L\w+);")
_BARRIER = re.compile(r"bar\.sync[^;]*;")


def without_timers(ptx: str) -> str:
    """None of the three readings of the globaltimer."""
    return _TIMER.sub(r"\1, 5;", ptx)


def without_barrier(ptx: str) -> str:
    """The warps do not wait for each other before they copy their rings."""
    last = list(_BARRIER.finditer(ptx))[-1]
    return ptx[: last.start()] + ptx[last.end() :]


def without_copy(ptx: str) -> str:
    """Each warp ends where it would copy its ring and, one of them, the rest of the header."""
    last = list(_BARRIER.finditer(ptx))[-1]
    return ptx[: last.start()] + "ret;" + ptx[last.end() :]


def without_header(ptx: str) -> str:
    """No thread writes at the begin."""
    around = list(_BRANCH.finditer(ptx, 0, ptx.index(_PREAMBLE)))[-1]
    return ptx[: around.start()] + f"bra {around[1]};" + ptx[around.end() :]


def without_records(ptx: str) -> str:
    """No clock is read, and nothing is stored in the ring."""
    return _STORE.sub("", _CLOCK.sub(r"mov.u32 \1, 7;", ptx))


PARTS: dict[str, tuple[Cut, ...]] = {
    "whole": (),
    "without the timers": (without_timers,),
    "without the barrier": (without_barrier,),
    "without the copy": (without_copy,),
    "... and the header": (without_copy, without_header),
    "... and the records": (without_copy, without_header, without_records),
}


@contextmanager
def cut_out(cuts: tuple[Cut, ...]) -> Iterator[None]:
    """Kernels with records that are compiled here lack these parts."""
    original = CUDABackend.make_cubin

    def make_cubin(backend: Any, ptx: str, *args: Any, **kwargs: Any) -> Any:
        if _PREAMBLE not in ptx:
            return original(backend, ptx, *args, **kwargs)
        for cut in cuts:
            before, ptx = ptx, cut(ptx)
            if ptx == before:
                raise RuntimeError(f"{cut.__name__}: the PTX has nothing of the kind")
        return original(backend, ptx, *args, **kwargs)

    CUDABackend.make_cubin = make_cubin
    try:
        yield
    finally:
        CUDABackend.make_cubin = original


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kernel", action="append", choices=list(KERNELS))
    parser.add_argument("--at", action="append", metavar="SELECTOR")
    parser.add_argument("--rounds", type=int, default=150)
    arguments = parser.parse_args()
    for name, cuts in PARTS.items():
        FORMS[name] = Form(tuple(arguments.at or EVERYTHING), around=partial(cut_out, cuts))
    for kernel in arguments.kernel or KERNELS:
        figures = measure(KERNELS[kernel](), ["plain", *PARTS], arguments.rounds)
        print(f"{kernel}: {figures['plain']['median_us']:.2f} µs")
        for name, values in figures.items():
            low, high = (100 * (values[end] - 1) for end in ("low", "high"))
            print(f"  {name:20} {100 * (values['ratio'] - 1):+6.2f} % [{low:+.2f}, {high:+.2f}]", flush=True)


if __name__ == "__main__":
    main()
