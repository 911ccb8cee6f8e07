"""Decodes a capture and writes a trace, for benchmarks/decoding.py.

    python decode_once.py CAPTURE TRACE

Prints JSON: the ``seconds`` from opening the capture to the trace's last byte, the ``scopes`` in it, its ``bytes``, and
the most memory that this process had in use, without its forks.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from kprof_inject.capture.reader import read_capture
from kprof_inject.export.formats import TraceFile
from kprof_inject.pipeline.captures import decode_launches, run_to_decode, run_to_write
from kprof_inject.timeline.timeline import Timeline


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    capture, trace = map(Path, sys.argv[1:])
    figures: dict[str, float] = {}
    begin = time.perf_counter()
    launches = read_capture(capture).launches
    decoded = decode_launches(launches, run_to_decode(launches))
    timelines = [found for found in decoded if isinstance(found, Timeline)]
    decoded_at = time.perf_counter()
    TraceFile.at(trace).write(timelines, run_to_write(timelines))
    figures["seconds"] = time.perf_counter() - begin
    figures["decode_seconds"] = decoded_at - begin
    figures["launches"] = len(launches)
    figures["scopes"] = sum(timeline.scope_count for timeline in timelines)
    figures["raw_bytes"] = sum(launch.buffer_bytes for launch in launches)
    figures["bytes"] = trace.stat().st_size
    figures["peak_bytes"] = peak_bytes()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
