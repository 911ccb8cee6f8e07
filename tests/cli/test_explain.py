"""``explain``: bounded evidence for programs, on the recorded capture and on captures made by hand."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from buffers import SM_CLOCK_HZ, Cta, Scope, buffer_words, end, kernel_json, save_launch, save_launches, start
from command_line import CommandLine
from pages import files_of
from programs.child import REPO
from several_kernels import save_kernels, three_kernels
from snapshots import check

from kprof_inject.workspace import Workspace

CAPTURE = REPO / "tests/captures/matmul"
VALIDATOR = jsonschema.Draft202012Validator(json.loads((REPO / "docs/explain.schema.json").read_text()))


def explained(kprof: CommandLine, *arguments: str | Path) -> dict[str, Any]:
    ended = kprof("explain", *arguments)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(ended.stdout)
    VALIDATOR.validate(found)
    return found


def test_the_recorded_capture_is_explained(kprof: CommandLine) -> None:
    found = explained(kprof, CAPTURE)
    (launch,) = json.loads(kprof("report", CAPTURE, "--json").stdout)
    assert found["findings"][0]["text"] == launch["findings"][0]["text"]
    assert found["kernel"]["time_ns"] == launch["duration_ns"]
    assert found["limit"]["text"] == launch["limit"]["text"]
    assert [rule for one in found["not_judged"] for rule in one["rules"]] == ["waiting"]
    assert found["left_out"] == {}


def least_budget(kprof: CommandLine) -> int:
    """Of the recorded capture, as the refusal names it."""
    ended = kprof("explain", CAPTURE, "--budget", "10")
    assert (ended.exit_code, ended.stdout) == (2, "")
    return int(ended.stderr.split("--budget ")[1].split()[0])


def test_the_budget_is_kept_to_the_letter(kprof: CommandLine) -> None:
    least = least_budget(kprof)
    for budget in range(least, least + 150, 40):
        ended = kprof("explain", CAPTURE, "--budget", str(budget))
        assert len(ended.stdout) <= 4 * budget
        assert sum(json.loads(ended.stdout)["left_out"].values()) > 0


def test_too_small_a_budget_is_a_usage_error_that_names_the_least(kprof: CommandLine) -> None:
    least = least_budget(kprof)
    assert kprof("explain", CAPTURE, "--budget", str(least)).exit_code == 0
    assert kprof("explain", CAPTURE, "--budget", str(least - 1)).exit_code == 2
    assert kprof("explain", CAPTURE, "--budget", "0").exit_code == 2


def test_the_default_workspace_and_its_last_capture(kprof: CommandLine) -> None:
    for name in ("kprof_out", "my work"):
        workspace = Workspace.create(kprof.folder / name).folder
        shutil.copytree(CAPTURE, workspace / "captures/001")
    assert explained(kprof)["next"]["command"] == "kprof-inject profile --launches 0:20 -- PROG"
    assert explained(kprof, "my work")["next"]["command"].startswith("kprof-inject profile -o 'my work' --launches")


def test_kernel_and_launch_can_be_named(kprof: CommandLine) -> None:
    assert explained(kprof, CAPTURE, "--kernel", "matmul*", "--launch", "29")["kernel"]["launch"] == 29
    ended = kprof("explain", CAPTURE, "--kernel", "other")
    assert ended.exit_code == 1
    assert ended.errors() == ["error: --kernel other matches nothing"]


@pytest.mark.parametrize("chosen", [(), ("--kernel", "long"), ("--launch", "1")])
def test_what_is_of_the_program_is_of_the_whole_capture(kprof: CommandLine, chosen: tuple[str, ...]) -> None:
    three_kernels(kprof.folder / "capture")
    kernel = explained(kprof, "capture", *chosen)["kernel"]
    assert (kernel["name"], kernel["share_of_program"]) == ("long", 0.6)
    assert (kernel["launches_in_program"], kernel["launches_captured"]) == (10, 2)


def test_what_the_user_chose_is_in_the_next_command(kprof: CommandLine) -> None:
    three_kernels(kprof.folder / "capture")
    assert explained(kprof, "capture", "--kernel", "short")["next"]["command"].startswith(
        "kprof-inject profile --kernel short "
    )
    folder = save_kernels(kprof.folder / "one", {"short": (3000, 5)})
    for path in folder.glob("*/process.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"kernel": "sh*", "launches": "5:9"}))
    assert explained(kprof, "one")["next"]["command"].startswith("kprof-inject profile --kernel 'sh*' --launches 5:9 ")


def test_there_are_no_questions(kprof: CommandLine) -> None:
    ended = kprof("explain", CAPTURE, "--question", "share loop[0]")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.errors() == ["error: No such option '--question'."]


def test_without_a_launch_there_is_nothing_to_explain(kprof: CommandLine) -> None:
    folder = Path(shutil.copytree(CAPTURE, kprof.folder / "capture"))
    for path in folder.glob("*/launches.jsonl"):
        path.write_text("")
    ended = kprof("explain", "capture")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "contains no launches" in ended.stderr


def test_a_name_that_no_terminal_shows_is_printed_as_what_it_is(kprof: CommandLine) -> None:
    name = 'a"\\\n\x1b[31mé'
    ctas = [Cta([[start(0, 10), end(0, 1990)]])]
    save_launch(kprof.folder / "capture", [Scope(name)], ctas, 4)
    ended = kprof("explain", "capture")
    assert "\x1b" not in ended.stdout
    assert json.loads(ended.stdout)["scopes"][0]["scope"] == 'a"\\  [31mé'


def waiting_capture(folder: Path, wait_ns: int) -> None:
    """20 launches of a kernel whose loop of ten iterations works for 5 µs in each, and then waits."""
    scopes = [
        Scope("func"),
        Scope("loop[0]", "loop", 0),
        Scope("iter[0]", "iter", 1),
        Scope("ttg.async_wait", "op", 2),
    ]
    buffers = [buffer_words([_waiting_cta(wait_ns + 10 * (number % 5))], 64) for number in range(20)]
    save_launches(folder, kernel_json(scopes, buffers[0], 1), buffers)


def _waiting_cta(wait_ns: int) -> Cta:
    begin_ns, work_ns = 1_000_000, 5000
    now_ns = begin_ns
    records = [(start, 0, now_ns), (start, 1, now_ns)]
    for _ in range(10):
        waits_ns, ends_ns = now_ns + work_ns, now_ns + work_ns + wait_ns
        records += [(start, 2, now_ns), (start, 3, waits_ns), (end, 3, ends_ns), (end, 2, ends_ns)]
        now_ns = ends_ns
    records += [(end, 1, now_ns), (end, 0, now_ns)]
    # Each record is made after the one before.
    cycles = [round(at_ns * SM_CLOCK_HZ / 1e9) + 2 * number for number, (_, _, at_ns) in enumerate(records)]
    warp = [made(scope, at) for (made, scope, _), at in zip(records, cycles, strict=True)]
    return Cta([warp], 0, begin_ns, now_ns + 100, now_ns + 200)


def test_the_tuner_of_the_documentation_stops_where_nothing_is_won(
    kprof: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second stage halves the waits, and a third changes nothing."""
    asked: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        program, *words = command
        assert program == "kprof-inject"
        asked.append(words[0])
        if words[0] == "profile":
            # Without a GPU: a capture in place of the run.
            waiting_capture(kprof.folder / words[words.index("-o") + 1], 8000 if words[-1] == "1" else 4000)
            return subprocess.CompletedProcess(command, 0, "")
        ended = kprof(*words)
        assert ended.stderr == "" or words[0] == "diff", ended.stderr
        return subprocess.CompletedProcess(command, ended.exit_code, ended.stdout)

    monkeypatch.setattr(subprocess, "run", run)
    kprof.write("tuner.py", files_of((REPO / "docs/agents.md").read_text())["tuner.py"])
    assert len(kprof.read("tuner.py").splitlines()) < 40
    runpy.run_path(str(kprof.folder / "tuner.py"))
    first, second, best = capsys.readouterr().out.splitlines()
    assert "B is 1.44 × faster (" in first
    check("cli/explain", "\n".join([first, second, best]), "tuner.py")
    assert best.startswith("best: 2 stages; ")
    assert asked == ["profile", *["explain", "profile", "diff"] * 2]
