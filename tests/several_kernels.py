"""A capture of a program with several kernels, whose parts of its time are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from buffers import Cta, Scope, buffer_words, end, kernel_json, save_process, start

SCOPES = [Scope("func")]
SHORT, LONG = "short", "long"


def save_kernels(folder: Path, kernels: Mapping[str, tuple[int, int]], **changes: Any) -> Path:
    """Two launches each of kernels that take so many nanoseconds, which the program launched so often. ``changes`` are
    of what the capture says of each kernel."""
    for name, (duration_ns, launches) in kernels.items():
        begin_ns = 1_000_000
        records = [start(0, 2 * begin_ns), end(0, 2 * (begin_ns + duration_ns))]
        words = buffer_words([Cta([records], 0, begin_ns, begin_ns + duration_ns, begin_ns + duration_ns)], 4)
        process = folder / f"process-{name}"
        save_process(process, kernel_json(SCOPES, words, 1, name=name) | changes, [words, words], variant=name)
        path = process / "end.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"launches": {name: launches}}))
    return folder


def three_kernels(folder: Path) -> Path:
    """``long`` takes 60 % of the program's time, ``short`` 30 %, and ``other`` 10 %."""
    return save_kernels(folder, {SHORT: (3000, 100), LONG: (60_000, 10), "other": (1000, 100)})
