"""``report``: the tables of a capture that is there already, without a GPU."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from altered import altered, report_of
from buffers import make_editable
from command_line import CommandLine
from known_launch import known_launch
from programs.child import REPO, run_child
from replacing import replace
from several_kernels import three_kernels
from snapshots import check

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.cli.capture_lines import say_next
from kprof_inject.workspace import Workspace

TIMES_NS = [1000 * us for us in (13_990, 13_994, 14_000, 14_003, 14_010, 14_012, 14_020)]


@pytest.fixture
def capture(kprof: CommandLine) -> Path:
    """The recorded capture, as if the times of its kernel were those."""
    folder = Path(shutil.copytree(REPO / "tests/captures/matmul", kprof.folder / "capture"))
    make_editable(folder)
    (path,) = folder.glob("*/kernels/*/kernel.json")
    clean = {"registers": 210, "spills": 0, "shared_bytes": 98304, "ctas_per_sm": 2, "times_ns": TIMES_NS}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"clean": clean, "ctas_per_sm": 2}))
    path.with_name("timing.json").write_text(json.dumps({"times_ns": [1.01 * time for time in TIMES_NS]}))
    return folder


def test_the_answer_comes_first(kprof: CommandLine, capture: Path) -> None:
    ended = kprof("report", "capture")
    assert ended.exit_code == 0
    check("cli/report", ended.stdout, "answer")
    check("cli/report", ended.stderr, "origin and next steps")
    lines = [line.rstrip() for line in ended.stdout.splitlines()]
    assert lines[0].startswith("matmul_kernel #29 ") and lines[1].startswith("LIMIT  the tensor cores (")
    assert any(line.startswith("TRUST  trustworthy: ") for line in lines)
    table = next(number for number, line in enumerate(lines) if line.startswith("scope"))
    assert [line.split("  ")[0].strip() or line.split()[0] for line in lines[table + 1 :]] == [
        *("func", "loop[0]", "between", "iter[0]")
    ]
    assert "16 x 591 ns" in lines[-1]


def test_of_several_kernels_the_first_is_the_one_to_look_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, long = (known_launch(tmp_path / name) for name in ("short", "long"))
    reports = [
        LaunchAnalysis.of(
            replace(timeline, launch=replace(timeline.launch, kernel=replace(timeline.launch.kernel, name=name)))
        )
        for timeline, name in ((short, "short"), (long, "long"))
    ]
    longer = altered(reports[1], summary=replace(reports[1].summary, kernel="long", duration_ns=9000))
    say_next(tmp_path / "ws", report_of(reports[0], longer))
    assert capsys.readouterr().err.splitlines()[0].endswith(" --kernel long")


def test_a_capture_that_causal_made_says_so_and_where_that_of_profile_is(kprof: CommandLine) -> None:
    workspace = Workspace.create(kprof.folder / "ws").folder
    for number in ("001", "002", "003"):
        three_kernels(workspace / "captures" / number)
    for path in workspace.glob("captures/00[23]/*/process.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"made_by": "causal"}))
    origin, profiled, *others = kprof("report", "ws", "--kernel", "short").stderr.splitlines()
    assert origin.startswith("kprof-inject: ws/captures/003: captured ") and origin.endswith(" ago by causal")
    assert profiled.endswith(": kprof-inject report ws/captures/001")
    # The advice is for this kernel: the program has others.
    assert "kprof-inject causal -o ws --kernel short -- PROG" in others[-1]
    check("cli/report", "\n".join([origin, profiled, *others]), "made by causal")
    assert "by causal" not in kprof("report", "ws/captures/001").stderr


def test_its_clock_limits_the_demo(kprof: CommandLine, capture: Path) -> None:
    (launch,) = json.loads(kprof("report", "capture", "--json").stdout)
    assert [finding["rule"] for finding in launch["findings"]] == ["throttled"]
    check("cli/report", launch["findings"][-1]["text"], "throttled")
    assert launch["limit"]["units"] == ["tensor cores", "L2 to SM"]
    # What its CTAs need before and after their loops, and the SMs at the end: the room for the thresholds.
    assert launch["phases"]["before_ns"] / launch["phases"]["whole_ns"] == pytest.approx(0.08, abs=0.005)
    assert launch["phases"]["after_ns"] / launch["phases"]["whole_ns"] == pytest.approx(0.07, abs=0.005)
    assert launch["ending"]["idle_share"] == pytest.approx(0.045, abs=0.005)


def test_a_page_is_written_beside_the_table(kprof: CommandLine, capture: Path) -> None:
    ended = kprof("report", "capture", "--html", "page.html")
    assert ended.exit_code == 0
    assert ended.stdout == kprof("report", "capture").stdout
    size = (kprof.folder / "page.html").stat().st_size
    where = (kprof.folder / "page.html").resolve().as_uri()
    assert f" page.html ({size / 1e3:.1f} kB): " in ended.stderr.splitlines()[-1]
    assert ended.stderr.splitlines()[-1].endswith(f": {where}")


def test_a_page_is_written_though_nobody_reads_the_tables(kprof: CommandLine, capture: Path) -> None:
    command = f"{sys.executable} -m kprof_inject report capture --html page.html | true"
    assert run_child(["sh", "-c", command], kprof.folder).stderr.startswith("kprof-inject: capture: ")
    assert kprof.read("page.html").endswith("</html>\n")


def test_ranks_that_wait_for_each_other_are_not_sent_to_causal(kprof: CommandLine) -> None:
    said = kprof("report", str(REPO / "tests/captures/late-rank")).stderr
    assert "more: kprof-inject report" in said
    assert "causal" not in said
