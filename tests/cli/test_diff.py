"""``diff``: two captures whose truth is known, as files, without a GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton
from buffers import SM_CLOCK_HZ, Cta, JsonWriter, Scope, buffer_words, end, kernel_json, launch_json, start
from command_line import CommandLine
from golden import beside, form_of, kernel_of, read
from programs.child import REPO, Ended
from snapshots import check
from triton_oracle import installed_fixtures

SOURCE = ["import triton", "def scale(x):", "    for k in range(n):", "        x *= 2"]
SCOPES = [
    Scope("func", "func", -1, ("/src/scale.py", 2)),
    Scope("loop[0]", "loop", 0, ("/src/scale.py", 3)),
]
LAUNCHES = 12
HEAD_NS, LOOP_NS = 50_000, 150_000
CTAS = 4
CLOCK_GHZ = SM_CLOCK_HZ / 1e9


def write_capture(
    folder: Path,
    seed: int,
    *,
    loop_ns: float = LOOP_NS,
    launches: int = LAUNCHES,
    name: str = "scale",
    scopes: Sequence[Scope] = SCOPES,
    slots: int = 8,
    clean_ns: float | None = None,
    changes: dict[str, Any] | None = None,
) -> Path:
    """A capture of one process; each launch takes what it takes within two parts of a thousand."""
    random = np.random.default_rng(seed)
    buffers = [
        buffer_words([_cta(number, HEAD_NS, loop_ns * scatter, random) for number in range(CTAS)], slots)
        for scatter in np.exp(random.normal(0, 0.002, launches))
    ]
    kernel = kernel_json(scopes, buffers[0], 1, name=name)
    if clean_ns is not None:
        kernel["clean"] = {"registers": 32, "times_ns": (clean_ns * np.exp(random.normal(0, 0.002, 60))).tolist()}
    kernel.update(changes or {})
    writer = JsonWriter(folder / f"process-{seed}", {"pid": seed})
    writer.add_kernel("v0", kernel, "module {}\n", {"/src/scale.py": "\n".join(SOURCE)})
    for index, words in enumerate(buffers, start=1):
        writer.add_launch(launch_json(words, index=index, host_ns=index), memoryview(words.tobytes()))
    writer.finish()
    return folder


def _cta(number: int, head_ns: float, loop_ns: float, random: np.random.Generator) -> Cta:
    begin_ns = 1_000_000 + 32 * number
    at_cycles = [round((begin_ns + after_ns) * CLOCK_GHZ) for after_ns in (0, head_ns, head_ns + loop_ns)]
    records = [start(0, at_cycles[0]), start(1, at_cycles[1]), end(1, at_cycles[2]), end(0, at_cycles[2] + 4)]
    end_ns = begin_ns + round(head_ns + loop_ns)
    return Cta([records], number, begin_ns, end_ns, end_ns + 100)


def _said(ended: Ended) -> list[str]:
    """What stderr has beside the lines that name the captures."""
    return [line for line in ended.stderr.splitlines() if not re.match(r"kprof-inject: ([AB]:|where B's) ", line)]


@pytest.fixture
def before(kprof: CommandLine) -> Path:
    return write_capture(kprof.folder / "before", 1)


def test_the_same_kernel_twice_is_no_difference(kprof: CommandLine, before: Path) -> None:
    write_capture(kprof.folder / "after", 2)
    ended = kprof("diff", "before", "after", "--fail-above", "5%")
    assert (ended.exit_code, _said(ended)) == (0, [])
    assert [line.rpartition(":")[0] for line in ended.stderr.splitlines()] == [
        "kprof-inject: A: before",
        "kprof-inject: B: after",
    ]
    assert ended.stdout.startswith("no difference: ") and " 200 µs " in ended.stdout.splitlines()[0]


def test_a_slower_loop_is_told_and_fails_the_gate(kprof: CommandLine, before: Path) -> None:
    write_capture(kprof.folder / "after", 2, loop_ns=1.2 * LOOP_NS)
    ended = kprof("diff", "before", "after", "--fail-above", "5%")
    assert ended.exit_code == 1
    # 30 of 200 µs.
    assert re.match(r"B takes 1[45]\.\d % more time \[", ended.stdout)
    check("cli/diff", ended.stdout, "a slower loop")
    check("cli/diff", "\n".join(_said(ended)), "--fail-above")
    assert kprof("diff", "before", "after").exit_code == 0
    assert kprof("diff", "before", "after", "--fail-above", "0.2").exit_code == 0
    assert kprof("diff", "after", "before", "--fail-above", "0").exit_code == 0


def test_one_launch_each_cannot_tell_and_says_how_to(kprof: CommandLine) -> None:
    for number, folder in enumerate(("before", "after")):
        write_capture(kprof.folder / folder, number, launches=1)
    ended = kprof("diff", "before", "after")
    assert ended.exit_code == 0
    assert ended.stdout.startswith("cannot tell: ") and "--launches all" in ended.stdout.splitlines()[1]
    gated = kprof("diff", "before", "after", "--fail-above", "5%")
    assert gated.exit_code == 1 and "cannot tell whether scale is slower" in gated.stderr


def test_a_page_is_written_beside_the_table(kprof: CommandLine, before: Path) -> None:
    ended = kprof("diff", "before", "before", "--html", "diff.html")
    assert ended.exit_code == 0
    check("cli/diff", "\n".join(_said(ended)), "the same capture")
    assert "--html" not in ended.stderr and "--html" in kprof("diff", "before", "before").stderr
    assert kprof.read("diff.html").startswith("<!doctype html>")
    assert ended.stdout.splitlines()[0] in kprof.read("diff.html")


def test_different_kernels_are_an_error_that_names_both(kprof: CommandLine, before: Path) -> None:
    write_capture(kprof.folder / "after", 2, name="scale_fast")
    ended = kprof("diff", "before", "after")
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/diff", "\n".join(_said(ended)), "different kernels")
    renamed = kprof("diff", "before", "after", "--renamed", "scale=scale_fast")
    assert renamed.exit_code == 0 and "differs: kernel scale → scale_fast" in renamed.stdout


def test_more_captures_of_a_side_can_be_given(kprof: CommandLine, before: Path) -> None:
    for number in range(2, 8):
        write_capture(kprof.folder / f"c{number}", number, loop_ns=LOOP_NS * (1 + 0.02 * (number % 3)))
    more = [word for number in (3, 4) for word in ("--more-a", f"c{number}")]
    more += [word for number in (6, 7) for word in ("--more-b", f"c{number}")]
    ended = kprof("diff", "c2", "c5", *more)
    assert ended.stdout.startswith("no difference: ")
    assert "36 launches each" in ended.stdout


def test_a_capture_that_is_given_twice_counts_once(kprof: CommandLine, before: Path) -> None:
    write_capture(kprof.folder / "after", 2, loop_ns=1.1 * LOOP_NS)
    once = kprof("diff", "before", "after")
    twice = kprof("diff", "before", "after", "--more-a", kprof.folder / "before", "--more-b", "after/../after")
    assert twice.stdout == once.stdout
    check("cli/diff", "\n".join(_said(twice)), "a capture given twice")


def test_launches_can_be_chosen(kprof: CommandLine, before: Path) -> None:
    values = json.loads(kprof("diff", "before", "before", "--launch", "3-9", "--json").stdout)
    assert values["kernels"][0]["a"]["launches"] == list(range(3, 10))


def test_the_shipped_capture_beside_itself(kprof: CommandLine) -> None:
    demo = REPO / "tests/captures/matmul"
    ended = kprof("diff", demo, demo)
    assert ended.exit_code == 0
    check("cli/diff", ended.stdout, "the shipped capture")
    # More launches of the same capture would show no difference, either.
    assert "capture more" not in ended.stdout and "give more" not in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        ("before", 2),
        ("before before --fail-above 5", 2),
        ("before before --scope dot", 1),
        ("before before --scope loop* --scope dot", 1),
        ("before before --renamed zzz=scale", 1),
        ("before before --renamed scale=zzz", 1),
    ],
)
def test_mistakes_are_told(kprof: CommandLine, before: Path, arguments: str, exit_code: int) -> None:
    ended = kprof("diff", *arguments.split())
    assert ended.exit_code == exit_code
    assert "Traceback" not in ended.stderr
    check("cli/diff_mistakes", "\n".join(_said(ended)), arguments)


def test_two_modules_are_compared_by_what_the_compiler_made_of_each_line(
    kprof: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without compiling them: tests below do."""
    monkeypatch.setattr("kprof_inject.cli.diff._build_of", lambda *_: None)
    a = REPO / "ttgir_fixtures/3.6.0/cuda-90/matmul.ttgir"
    (kprof.folder / "b.ttgir").write_text(a.read_text().replace("{num = 2 : i32}", "{num = 0 : i32}"))
    ended = kprof("diff", a, "b.ttgir")
    assert (ended.exit_code, ended.stderr) == (0, "")
    check("cli/diff", ended.stdout.splitlines()[0], "two modules")
    assert kprof("diff", a, a).stdout == "the TTGIR is the same on both sides\n"
    ended = kprof("diff", a, "b.ttgir", "--scope", "loop*", "--more-a", "c.ttgir", "--json")
    assert ended.exit_code == 2
    check("cli/diff", ended.stderr, "--more-a, --scope")
    capture = REPO / "tests/captures/matmul"
    for pair in ((a, capture), (capture, a)):
        ended = kprof("diff", *pair)
        assert ended.exit_code == 1
        check("cli/diff", ended.stderr, "a module and a capture")
    (kprof.folder / "c.ttgir").write_text(a.read_text().replace("arith.constant 63 : i32", "arith.constant 31 : i32"))
    check("cli/diff", kprof("diff", a, "c.ttgir").stdout.splitlines()[0], "another constant")
    recorded = a.with_name("matmul.expected.ttgir")
    check("cli/diff", kprof("diff", a, recorded).stdout, "records alone")
    (kprof.folder / "broken.ttgir").write_text("module {")
    assert kprof("diff", a, "broken.ttgir").stderr.startswith("broken.ttgir:1:9: error: ")


def test_one_module_is_compiled_by_two_tritons(kprof: CommandLine) -> None:
    """The folders are of one version, as there may be no other; the other one cannot be imported."""
    (module,) = [
        path
        for path in installed_fixtures()
        if kernel_of(path) == "matmul" and path.parent.name == "cuda-90" and not form_of(path)
    ]
    (kprof.folder / "a.ttgir").write_text(read(module))
    installed = Path(triton.__file__).parents[1]
    ended = kprof("diff", "a.ttgir", "--triton", installed, installed)
    same, built = ended.stdout.splitlines()
    assert (ended.exit_code, ended.stderr, same) == (0, "", "the TTGIR is the same on both sides")
    shared = json.loads(beside(module, ".json").read_text())["shared"]
    assert re.fullmatch(
        rf"compiled by Triton (\S+) → \1: shared bytes {shared}, registers \d+, spills 0, CTAs per SM [1-9]", built
    )
    (kprof.folder / "other" / "triton").mkdir(parents=True)
    (kprof.folder / "other" / "triton" / "__init__.py").write_text("raise ImportError('the other one')\n")
    ended = kprof("diff", "a.ttgir", "--triton", installed, "other")
    assert "the other one" in ended.stderr and f"→ other: shared bytes {shared} → -" in ended.stdout
    for places, name in (
        (("a.ttgir",), "--triton: no Triton"),
        ((REPO / "tests/captures/matmul",) * 2, "--triton: captures"),
    ):
        ended = kprof("diff", *places, "--triton", ".", installed)
        assert ended.exit_code == 2
        check("cli/diff_mistakes", "\n".join(_said(ended)), name)


def test_two_modules_are_compiled_to_say_what_they_take(kprof: CommandLine) -> None:
    """The truth is what Triton's metadata had when the fixtures were made."""
    files = [path for path in installed_fixtures() if kernel_of(path) == "matmul" and not form_of(path)]
    paths = {path.parent.name: path for path in files}
    a, b = paths["cuda-90"], kprof.folder / "b.ttgir"
    b.write_text(read(paths["hip-gfx942"]))
    ended = kprof("diff", a, b, "--json")
    found = json.loads(ended.stdout)
    shared = [json.loads(beside(paths[target], ".json").read_text())["shared"] for target in ("cuda-90", "hip-gfx942")]
    assert ended.stderr == ""
    assert [found["builds"][side]["shared_bytes"] for side in "ab"] == shared and shared[0] != shared[1]
    assert all(found["builds"][side]["registers"] > 32 and found["builds"][side]["spills"] == 0 for side in "ab")
    b.write_text(read(a).replace("ttg.local_alloc", "ttg.unheard_of").replace("ttg.async_wait", "ttg.nor_of_this"))
    ended = kprof("diff", a, b)
    assert "the shared memory of" in ended.stderr and "ttg.unheard_of" in ended.stderr
    assert f"shared bytes {shared[0]} → -" in ended.stdout
