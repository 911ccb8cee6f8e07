"""``--tag`` on the command line and in settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from golden import FIXTURES
from snapshots import check

GROUPED = Path(FIXTURES, "3.6.0/cuda-90/grouped_gemm.ttgir").read_text()


@pytest.fixture
def grouped(kprof: CommandLine) -> str:
    kprof.write("grouped.ttgir", GROUPED)
    return "grouped.ttgir"


def tags(kprof: CommandLine, *words: str) -> dict[str, dict[str, str]]:
    ended = kprof("insert", *words, "--dry-run", "--json")
    assert ended.exit_code == 0, ended.stderr
    (plan,) = json.loads(ended.stdout)
    scopes = plan["scopes"]
    return {scope["record"]: {tag["name"]: tag["value"] for tag in scope.get("tags", ())} for scope in scopes}


def test_a_tag_goes_with_the_selector_before_it(kprof: CommandLine, grouped: str) -> None:
    words = ("--at", "loop[0]", "--tag", "n=n_problems", "--at=iter[0.0]", "--tag=tile=tile", "--tag", "c=%c0_i32")
    found = tags(kprof, grouped, *words, "--at", "func")
    assert found == {"func": {}, "loop[0]": {"n": "%n_problems"}, "iter[0.0]": {"tile": "%tile_18", "c": "%c0_i32"}}


def test_a_tag_without_a_selector_before_it(kprof: CommandLine, grouped: str) -> None:
    ended = kprof("insert", grouped, "--tag", "tile=tile", "--at", "func")
    assert (ended.exit_code, ended.stdout) == (2, "")
    check("cli/tag", ended.stderr, "tile=tile")


def test_a_value_that_is_not_there_is_an_error_at_the_site(kprof: CommandLine, grouped: str) -> None:
    ended = kprof("insert", grouped, "--at", "loop[0]", "--tag", "tile=nobody")
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/tag", ended.stderr, "tile=nobody")


def test_settings_have_tags_behind_their_selectors(kprof: CommandLine, grouped: str) -> None:
    kprof.write("pyproject.toml", '[tool.kprof-inject]\nat = ["iter[0.0] --tag tile=tile", "func"]\n')
    assert tags(kprof, grouped) == {"func": {}, "iter[0.0]": {"tile": "%tile_18"}}
    kprof.write("pyproject.toml", '[tool.kprof-inject]\ntag = "tile=tile"\n')
    assert kprof("insert", grouped).exit_code == 2


def test_tags_and_moved_stores_are_refused_before_the_program_runs(kprof: CommandLine) -> None:
    kprof.write("program.py", "raise SystemExit('it ran')")
    ended = kprof("profile", "--at", "func", "--tag", "n=n", "--sched-stores", "--", "program.py")
    assert (ended.exit_code, ended.stdout) == (2, "")
    check("cli/tag", ended.stderr, "--sched-stores")
    assert not (kprof.folder / "kprof_out").exists()
