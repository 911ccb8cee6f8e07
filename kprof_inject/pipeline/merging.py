"""The step that merges launches into the traces that ``torch.profiler`` wrote of their processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from kprof_inject.analysis.async_work.in_flight import recorded_in_flight
from kprof_inject.capture.measurements import MAX_TRACE_BYTES
from kprof_inject.errors import KprofError, printable
from kprof_inject.export.formats import gzipped
from kprof_inject.export.torch_trace import match, merged_trace, read_torch_trace
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.files import read_gzip, write_chunks
from kprof_inject.pipeline.captures import run_to_write
from kprof_inject.quantities import counted, size_text, time_text
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__


def merge(traces: Sequence[Path], timelines: Sequence[Timeline], folder: Path, layout: str | None) -> Iterator[str]:
    """Write ``torch_trace.kprof.json.gz`` to ``folder``, with the process in its name if there are several traces.

    Yield what was written, and what was left out with the reason. ``layout`` is one of ``LAYOUT_NAMES``. Raises
    ``KprofError`` if a trace cannot be read, or no launch matches.
    """
    for path in traces:
        pid = path.name.split(".")[1]
        own = [timeline for timeline in timelines if str(timeline.launch.process.pid) == pid]
        try:
            trace = read_torch_trace(read_gzip(path, MAX_TRACE_BYTES))
        except (ValueError, ArithmeticError, msgspec.MsgspecError) as error:
            raise KprofError(f"cannot read {path}: {printable(str(error))}", hint="profile again") from None
        launches, refused = match(trace, own)
        for name, reason in refused.items():
            if not launches:
                raise KprofError(f"no launch is in {path}: {name}: {reason}", hint="capture with --launches all")
            yield f"not in torch.profiler's trace: launches of {name}: {reason}"
        if not launches:
            raise KprofError(f"no launch is from the process of {path}", hint="profile a program that launches kernels")
        facts = {"version": __version__, "refused": refused}
        run = run_to_write([launch.timeline for launch in launches])
        chunks = merged_trace(trace, launches, facts, layout or LAYOUT_NAMES[0], recorded_in_flight, run)
        target = folder / f"torch_trace.{f'{pid}.' if len(traces) > 1 else ''}kprof.json.gz"
        try:
            size = write_chunks(target, gzipped(chunks))
        except OSError as error:
            raise KprofError(f"cannot write {target}: {error.strerror}") from None
        error_ns = max(launch.error_ns for launch in launches)
        yield f"wrote {target}: {counted(len(launches), 'launch')}, within ± {time_text(error_ns)}, {size_text(size)}"
