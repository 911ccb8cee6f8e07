"""Programs that are entangled with torch's allocator, graphs, dispatcher and with the end of the process: what they
print, the allocator's statistics among it, and how they end is the same bare, dumped, sampled, and run with records.

Each bare run and each of ours begins without Inductor's cache, as what Inductor tries out allocates memory.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from program_runs import PROGRAMS, Ended, ProgramRuns

ENTANGLED = sorted(path.stem for path in (PROGRAMS / "entangled").glob("*.py") if path.stem != "states")

BY_CHANCE = {
    # An autotuner of Inductor's repeats a launch as often as its time allows: two bare runs differ.
    "graph_trees": re.compile(
        r"^(active|active_bytes|allocation|requested_bytes|inactive_split\w*)\..*\n", re.MULTILINE
    )
}
"""What is not compared."""


def run(folder: Path, home: str, *command: str | Path) -> Ended:
    with ProgramRuns(folder, home) as runs:
        return runs.start(*command).wait(exit_code=None)


@pytest.fixture(scope="module")
def all_ways(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Ended]]:
    """Each program bare, dumped and run. Several run at once: most of their time is Python's and the compilers'."""

    def ways(name: str) -> dict[str, Ended]:
        folder, program = folders / name, PROGRAMS / "entangled" / f"{name}.py"
        folder.mkdir()
        ours = ("-m", "kprof_inject")
        bare = run(folder, "bare", program)
        dumped = run(folder, "dumped", *ours, "dump", "-o", "workspace", "--", sys.executable, program)
        run(folder, "inserted", *ours, "insert", "workspace")
        ran = run(folder, "ran", *ours, "run", "workspace", "--", sys.executable, program)
        return {"bare": bare, "dumped": dumped, "run": ran}

    folders = tmp_path_factory.mktemp("entangled")  # in one thread: pytest makes a basis for it first
    with ThreadPoolExecutor(8) as pool:
        return dict(zip(ENTANGLED, pool.map(ways, ENTANGLED), strict=True))


def said(name: str, text: str) -> list[str]:
    text = BY_CHANCE[name].sub("", text) if name in BY_CHANCE else text
    # Addresses, times and process numbers; and warnings name the caches' folders.
    text = re.sub(r"0x[0-9a-f]+|\d{4,}|\S*/(bare|dumped|ran|workspace)/\S*", "…", text)
    return [line for line in text.splitlines() if not line.startswith("kprof-inject:")]


@pytest.mark.parametrize("way", ["dumped", "run"])
@pytest.mark.parametrize("name", ENTANGLED)
def test_a_program_is_what_it_is_bare(all_ways: dict[str, dict[str, Ended]], name: str, way: str) -> None:
    bare, ended = all_ways[name]["bare"], all_ways[name][way]
    assert bare.exit_code == 0, bare
    if bare.stdout == "not installed\n":
        pytest.skip("a library is not installed")
    assert ended.exit_code == 0, ended
    assert bare.stdout
    assert said(name, ended.stdout) == said(name, bare.stdout), ended
    assert said(name, ended.stderr) == said(name, bare.stderr), ended


def test_they_are_replayed_all_the_same(all_ways: dict[str, dict[str, Ended]]) -> None:
    replayed = [name for name, ways in all_ways.items() if "to time the records" in ways["run"].stderr]
    print("replayed:", *replayed)
    assert len(replayed) >= 10
