"""``try`` and ``profile --try`` on the fake GPU, where more warps and more stages make a kernel faster."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from buffers import make_editable
from command_line import CommandLine
from fake_gpu.gpu import CTA_NS, REORDERED_NS
from launch_files import edit
from programs.child import PROGRAMS, REPO, Ended, clean_environment, fake_gpu_path, run_child

from kprof_inject.pipeline import edit_trials
from kprof_inject.pipeline.edit_trials import TryChoice
from kprof_inject.report.experiments import tried_schema
from kprof_inject.runtime.worker.edit_kinds import parse_edits
from kprof_inject.workspace import Workspace

STARTUP = PROGRAMS.parent / "fake_gpu" / "startup"
SCHEMA = REPO / "docs/try.schema.json"

PROGRAM = """
from fake_gpu.program import gpu
import torch
from fake_gpu.kernels import scale

x, out = torch.arange(1, 17, dtype=torch.float32), torch.zeros(16)
for n in range(1, 31):
    scale[(16,)](x, out, n)
print("result", out.tolist()[:3])
"""


@pytest.fixture
def kprof(tmp_path: Path) -> CommandLine:
    """The command line, whose programs and processes have the fake GPU; ``ws`` knows what records cost."""
    (tmp_path / "prog.py").write_text(PROGRAM)
    return CommandLine(tmp_path, fake_gpu_path(STARTUP))


@pytest.fixture(scope="module")
def tried_once(tmp_path_factory: pytest.TempPathFactory, scale_launch_once: Path) -> tuple[Path, dict[str, Any]]:
    """A folder with the workspace ``ws``, in which a launch was tried, and what that printed. Not to be changed."""
    kprof = CommandLine(tmp_path_factory.mktemp("tried"), fake_gpu_path(STARTUP))
    return kprof.folder, tried(kprof, scale_launch_once)


@pytest.fixture
def after_trial(tried_once: tuple[Path, dict[str, Any]], kprof: CommandLine) -> CommandLine:
    """The command line, where that was tried before."""
    shutil.copytree(tried_once[0] / "ws", kprof.folder / "ws")
    return kprof


def tried(kprof: CommandLine, *words: str | Path, exit_code: int = 0) -> dict[str, Any]:
    """Return what ``try --json`` prints of the only kernel."""
    ended = kprof("try", "-o", "ws", "--seconds", "60", "--json", *words)
    assert ended.exit_code == exit_code, ended.stderr
    assert ended.stdout.count("result [30.0, 60.0, 90.0]\n") == (2 if "--" in words else 0)
    values = json.loads(ended.stdout[ended.stdout.index("{") :])
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(values)
    (kernel,) = values["kernels"]
    return dict(kernel)


def names(kernel: dict[str, Any]) -> dict[str, dict[str, Any]]:
    record = kernel["record"]
    return {", ".join(f"{one['kind']}={one['value']}" for one in each["edits"]): each for each in record["tried"]}


def test_the_schema_is_that_of_the_records() -> None:
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(tried_schema())), "run scripts/try-schema"


@pytest.mark.triton
def test_a_saved_launch(tried_once: tuple[Path, dict[str, Any]]) -> None:
    folder, kernel = tried_once
    # On a busy machine, the finding that predicts it may be missing.
    assert kernel["headline"].startswith("num_warps=16 makes scale 6.1 % ± 0.0 faster")
    assert kernel["apply"]["options"] == {"num_warps": 16}
    assert kernel["apply"]["triton_config"] == "triton.Config({}, num_warps=16, num_stages=3)"
    assert (kernel["apply"]["command"], kernel["apply"]["ttgir"]) == (None, None)
    found = names(kernel)
    assert found["num_warps=2"]["outcome"] == "slower"
    assert found["num_warps=16"]["confirmed"]["pairs"] >= 12
    record = Workspace.open(folder / "ws").edits(kernel["record"]["variant"])
    assert record is not None
    assert record.winner is not None
    assert record.winner.text == "num_warps=16"


@pytest.mark.slow
def test_reports_show_what_was_tried(after_trial: CommandLine) -> None:
    kprof = after_trial
    screen = kprof("report", "ws").stdout
    assert "TRIED  num_warps=16 won 6.1 % ± 0.0" in screen
    assert screen.index("TRY ") < screen.index("TRIED ") < screen.index("TRUST ")
    whole = kprof("report", "ws", "-v").stdout
    assert "num_warps=16 makes scale 6.1 % ± 0.0 faster" in whole
    assert "/options.json in the workspace" in whole
    (launch,) = json.loads(kprof("report", "ws", "--json").stdout)
    assert launch["edits"]["tried"][launch["edits"]["best"]]["edits"] == [{"kind": "num_warps", "value": "16"}]
    assert kprof("report", "ws", "--html", "page.html").exit_code == 0


@pytest.mark.slow
def test_edits_of_an_earlier_capture_are_not_shown(after_trial: CommandLine, scale_launch: Path) -> None:
    assert after_trial("profile", "-o", "ws", scale_launch).exit_code == 0
    assert "TRIED" not in after_trial("report", "ws").stdout


@pytest.mark.slow
def test_edits_that_cannot_be_read_are_left_out(after_trial: CommandLine) -> None:
    (path,) = (after_trial.folder / "ws/edits").glob("*/edits.json")
    path.write_text(path.read_text().replace('"won":0.0', '"won":0.9'))
    ended = after_trial("report", "--json", "ws")
    assert ended.exit_code == 0
    assert json.loads(ended.stdout)[0]["edits"] is None
    assert "edits.json" in ended.stderr and "run try again" in ended.stderr


def test_profile_can_try_and_its_launches_are_tried_again(kprof: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit_trials, "TryChoice", partial(TryChoice, edits=(parse_edits("num_warps=16"),)))
    ended = kprof("profile", "-o", "ws", "--try", "--", sys.executable, "prog.py")
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.startswith("result [30.0, 60.0, 90.0]\n"), "it runs as by itself"
    assert ended.stdout.index("LIMIT") < ended.stdout.index("num_warps=16 makes scale 6.1 % ± 0.0 faster")
    assert "scale[grid](..., num_warps=16)" in ended.stdout
    assert list((kprof.folder / "ws/launches").glob("*/*.launch"))
    # A received workspace may name any program.
    (process,) = (kprof.folder / "ws/captures/001").glob("*/process.json")
    evil = kprof.folder / "evil"
    evil.write_text("#!/bin/sh\ntouch started\nexit 1\n")
    evil.chmod(0o755)
    process.write_text(json.dumps({**json.loads(process.read_text()), "executable": str(evil)}))
    make_editable(process.parents[1])
    kernel = tried(kprof, "--edit", "num_warps=2", "--edit", "num_warps=3")
    assert not (kprof.folder / "started").exists()
    assert {text: each["outcome"] for text, each in names(kernel).items()} == {
        "num_warps=2": "slower",
        "num_warps=3": "refused",
    }
    assert kernel["apply"] is None, "there is no win"
    assert kernel["headline"].startswith("no edit makes scale faster: 1 edit measured at 19.6 µs")
    folder = Workspace.open(kprof.folder / "ws").edits_folder(kernel["record"]["variant"])
    assert [path.name for path in folder.iterdir()] == ["edits.json"]


BLOCKS = """
from fake_gpu.program import gpu
import torch
from fake_gpu.kernels import blocks

x, out = torch.arange(1, 17, dtype=torch.float32), torch.zeros(16)
for n in range(1, 31):
    blocks[GRID](x, out, n, BLOCK=1)
print("result", out.tolist()[:3])
"""


@pytest.mark.slow
def test_other_values_of_constants_come_with_the_programs_grid(kprof: CommandLine) -> None:
    (kprof.folder / "prog.py").write_text(BLOCKS.replace("GRID", 'lambda meta: (16 // meta["BLOCK"],)'))
    words = [f"--edit={edit}" for edit in ("values=BLOCK=4", "values=BLOCK=2")]
    words += ["--values", "BLOCK=4,2", "--values", "OTHER=1"]
    kernel = tried(kprof, *words, "--", sys.executable, "prog.py")
    found = names(kernel)
    assert found["values=BLOCK=2"]["constants"] == {"BLOCK": 2}
    gains = [found[f"values=BLOCK={block}"]["gain"]["won"] for block in (4, 2)]
    assert gains == [pytest.approx(12 * CTA_NS / 21_170), pytest.approx(8 * CTA_NS / 21_170)]
    applied = kernel["apply"]
    assert applied["constants"] == {"BLOCK": 4}
    assert applied["triton_config"] == "triton.Config({'BLOCK': 4}, num_warps=4, num_stages=3)"


@pytest.mark.slow
def test_a_fixed_grid_must_be_named(kprof: CommandLine) -> None:
    (kprof.folder / "prog.py").write_text(BLOCKS.replace("GRID", "(16,)"))
    words = ("--values", "BLOCK=4", "--edit", "values=BLOCK=4")
    kernel = tried(kprof, *words, "--", sys.executable, "prog.py", exit_code=1)
    refusal = names(kernel)["values=BLOCK=4"]["refusal"]
    assert "name the grid with --grid" in refusal
    assert kernel["headline"] == f"no edit of blocks was measured, because {refusal}"
    kernel = tried(kprof, *words, "--grid", "triton.cdiv(n * 0 + 16, BLOCK), 1")
    assert names(kernel)["values=BLOCK=4"]["outcome"] == "faster"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--values", "BLOCK=4,x"), "'x' is no value of a constant"),
        (("--values", "BLOCK"), "cannot read the values 'BLOCK'"),
        (("--values", "A=1,2,3,4", "--values", "B=1,2,3,4", "--values", "C=1,2"), "--values makes 74 combinations"),
    ],
)
def test_values_that_cannot_be_read(kprof: CommandLine, words: tuple[str, ...], message: str) -> None:
    ended = kprof("try", "-o", "ws", *words, "--", sys.executable, "prog.py")
    assert ended.exit_code == 2
    assert message in ended.stderr


@pytest.mark.triton
def test_edits_of_ttgir_are_written_as_an_override(kprof: CommandLine, scale_launch: Path) -> None:
    kernel = tried(kprof, "--edit", "program_order=reversed", scale_launch)
    applied = kernel["apply"]
    assert (applied["options"], applied["edits"]) == ({}, [{"kind": "program_order", "value": "reversed"}])
    assert applied["command"].endswith(" PROG")
    assert applied["triton_config"].endswith(f", num_stages=3, ir_override='{applied['ttgir']}')")
    # The very command, with the program in place of PROG.
    shown = PROGRAM + "print('took', gpu.ran[-1].duration_ns)"
    (kprof.folder / "prog.py").write_text(shown)
    environment = {**clean_environment(kprof.folder), "PYTHONPATH": fake_gpu_path(STARTUP)}
    command = applied["command"].replace("PROG", f"{sys.executable} prog.py")
    ended = run_child(["sh", "-c", command], kprof.folder, env=environment)
    assert "result [30.0, 60.0, 90.0]" in ended.stdout, ended.stderr
    assert int(ended.stdout.split()[-1]) == 19_570 - REORDERED_NS


def test_edits_of_options_and_ttgir_are_combined(kprof: CommandLine, scale_launch: Path) -> None:
    kernel = tried(kprof, "--edit", "program_order=reversed", "--edit", "num_warps=16", scale_launch)
    assert names(kernel)["program_order=reversed, num_warps=16"]["results"] == "identical"
    applied = kernel["apply"]
    assert len(applied["edits"]) == 2
    assert applied["options"] == {"num_warps": 16}
    assert applied["command"] is None, "the source must have the option, too"
    text = Path(applied["ttgir"]).read_text()
    assert '"ttg.num-warps" = 16' in text
    assert "%kprof_order" in text


def test_a_kernel_that_polls_is_not_tried(kprof: CommandLine, scale_launch: Path) -> None:
    edit(scale_launch, lambda values: values.update(relaunch={"refusal": "", "waits": True}))
    kernel = tried(kprof, scale_launch, exit_code=1)
    assert "polls memory" in kernel["record"]["refusal"]
    assert kernel["record"]["tried"] == []


def test_ctrl_c_shows_and_saves_the_best_so_far(tmp_path: Path, scale_launch: Path) -> None:
    asked = [word for stages in range(1, 9) for word in ("--edit", f"num_warps=8,num_stages={stages}")]
    command = [sys.executable, "-m", "kprof_inject", "try", "-o", "ws", "--json", "--edit", "num_warps=16", *asked]
    process = subprocess.Popen(
        [*command, str(scale_launch)],
        cwd=tmp_path,
        env={**clean_environment(tmp_path), "PYTHONPATH": fake_gpu_path(STARTUP)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "num_warps=16 won" in line:
            process.send_signal(signal.SIGINT)
            break
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    (kernel,) = json.loads(stdout)["kernels"]
    assert kernel["headline"].startswith("num_warps=16 makes scale 6.1 % ± 0.0 faster")
    assert kernel["apply"]["options"] == {"num_warps": 16}
    assert kernel["record"]["ended"] == "interrupted"
    assert names(kernel)["num_warps=8, num_stages=8"]["refusal"] == "it was interrupted"
    saved = Workspace.open(tmp_path / "ws").edits(kernel["record"]["variant"])
    assert saved is not None and saved.ended == "interrupted"


def test_an_interrupted_program_is_reported_without_edits(kprof: CommandLine) -> None:
    (kprof.folder / "prog.py").write_text(PROGRAM + "import sys\nsys.exit(130)\n")
    ended = kprof("profile", "-o", "ws", "--try", "--", sys.executable, "prog.py")
    assert ended.exit_code == 130, ended.stderr
    assert "trying no edits" in ended.stderr
    assert "LIMIT" in ended.stdout


def refused(ended: Ended) -> str:
    assert (ended.exit_code, ended.stdout) == (2, "")
    return ended.stderr


def test_usage_errors(kprof: CommandLine) -> None:
    assert "there is no edit 'num_warp'" in refused(kprof("try", "--edit", "num_warp=8", "--", "prog.py"))
    assert "has no value" in refused(kprof("try", "--edit", "num_warps", "--", "prog.py"))
    assert "try --json" in refused(kprof("profile", "--try", "--json", "--", "prog.py"))
