"""A buffer that stock Proton recorded, decoded by us and by Proton."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from gpu_support import Kprof

from kprof_inject.capture.proton_buffer import read_proton_buffer, read_scope_names
from kprof_inject.timeline.timeline import decode_launch

PROGRAM = Path(__file__).with_name("programs") / "proton_scopes.py"
CTAS, WARPS, ROUNDS = 6, 4, 5

Found = Counter[tuple[int, int, str, int]]
"""How often a CTA's warp has a scope of this name and so many cycles."""


def ours(folder: Path) -> Found:
    capture = read_proton_buffer(folder / "kernel.bin", read_scope_names(folder / "kernel.ttgir"))
    timeline = decode_launch(capture.launches[0])
    assert timeline.records_lost == timeline.records_damaged == 0
    names = [scope.name for scope in timeline.table.scopes]
    return Counter(
        (cta, warp, names[scope], end - start)
        for cta, warp, scope, start, end in timeline.scopes[
            ["cta", "warp", "scope", "start_cycles", "end_cycles"]
        ].tolist()
    )


def protons(folder: Path) -> Found:
    """Proton takes the clock for 1 GHz, so that its microseconds are thousands of cycles."""
    events = json.loads((folder / "proton.chrome_trace").read_text())["traceEvents"]
    found: Found = Counter()
    for event in events:
        place = re.search(r"CTA(\d+) warp (\d+) ", f"{event.get('pid')} {event.get('tid')}")
        if event["ph"] == "X" and place:
            found[int(place[1]), int(place[2]), event["name"], round(1000 * event["dur"])] += 1
    return found


def test_protons_buffer_has_the_scopes_that_proton_shows(kprof: Kprof, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(PROGRAM), str(tmp_path)], check=True)
    found = ours(tmp_path)
    assert found.total() == CTAS * WARPS * (1 + 2 * ROUNDS)
    assert found == protons(tmp_path)
    kprof("trace", tmp_path / "kernel.bin", "--scope-names", tmp_path / "kernel.ttgir", "-o", tmp_path / "ours.json")
    shown = json.loads((tmp_path / "ours.json").read_text())["traceEvents"]
    names = Counter(event["name"] for event in shown if event["ph"] == "X" and event["cat"] != "launch")
    assert names == {"whole": CTAS * WARPS, "load": CTAS * WARPS * ROUNDS, "work": CTAS * WARPS * ROUNDS}
