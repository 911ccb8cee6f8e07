"""Runs cases until it is stopped: KIND SEED FIRST MEGABYTES. One line of JSON before each case and one behind it."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

Run = Callable[[int, int], dict[str, Any]]
"""Does the case with this number of the run with this seed; says what it was, and whether it was refused."""

_PAGE_BYTES = resource.getpagesize()


def ttgir(megabytes: int) -> Run:
    """Damaged TTGIR; the worker as a whole may take the memory."""
    from cases import corpus, make_case, refusal_of

    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    files = corpus()

    def run(seed: int, number: int) -> dict[str, Any]:
        refusal = refusal_of(make_case(seed, number, files))
        return {"refusal": refusal.what if refusal else None}

    return run


def captures(megabytes: int) -> Run:
    """Damaged captures and workspaces; each case may take so much more memory than there is when all is loaded."""
    from capture_cases import Corpus, run_case

    corpus = Corpus(Path(tempfile.mkdtemp(prefix="kprof-fuzz-")))
    corpus.try_all()
    loaded_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES
    corpus.most_bytes = loaded_bytes + (megabytes << 20) + 3 * corpus.buffer_bytes
    return lambda seed, number: run_case(corpus, seed, number)


def main() -> None:
    kind, (seed, first, megabytes) = sys.argv[1], map(int, sys.argv[2:])
    run = {"ttgir": ttgir, "captures": captures}[kind](megabytes)
    for number in count(first):
        say(number=number)
        try:
            said = run(seed, number)
        except Exception:  # noqa: BLE001 - whatever it is, this is what we look for
            say(finding=traceback.format_exc(limit=-8))
        else:
            say(**said)


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
