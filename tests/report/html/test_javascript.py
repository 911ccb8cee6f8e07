"""What of the page's modules needs no browser, tested in Node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from node import node
from programs.child import REPO

from kprof_inject.quantities import short_time, time_text

_FORMAT = REPO / "kprof_inject/report/html/assets/format.js"
_TESTS = sorted(Path(__file__).parent.joinpath("javascript").glob("*.test.mjs"))


@pytest.mark.parametrize("path", _TESTS, ids=lambda path: path.name.removesuffix(".test.mjs"))
def test_module(path: Path) -> None:
    ended = subprocess.run([node(), "--test", str(path)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_times_read_as_in_a_terminal() -> None:
    times_ns = [0, 7, 12.6, 999.4, 999.6, 1000, 1006, 9996, 12_345, 582_000.4, 999_499, 999_999.6, 1e6, 13e6, 2.5e9]
    program = f"""
        import {{ formatNs, shortNs }} from "{_FORMAT.as_uri()}";
        console.log(JSON.stringify({json.dumps(times_ns)}.map((ns) => [formatNs(ns), shortNs(ns)])));
    """
    command = [node(), "--input-type=module", "--eval", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == [[time_text(ns), short_time(ns)] for ns in times_ns]
