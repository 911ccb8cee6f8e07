"""Errors of the Python API name its arguments, not the command line's options."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import click
import numpy as np
import pytest
from known_launch import known_launch
from programs.child import REPO
from replacing import replace

import kprof_inject
from kprof_inject import cli, pytest_plugin
from kprof_inject.capture.ring_sizes import in_whole_rings
from kprof_inject.errors import KprofError
from kprof_inject.python_words import ARGUMENTS, ARGUMENTS_OF, in_python_words, python_words
from kprof_inject.results import Results

CAPTURE = REPO / "tests/captures/matmul"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "use at least --buffer-bytes 512, or record fewer --warps",
            "use at least Mode(buffer_bytes=512), or record fewer Mode(warps=...)",
        ),
        ("choose --buffer shared, or use Triton 3.7", 'choose Mode(buffer="shared"), or use Triton 3.7'),
        ("drop --sched-stores or --tag", "drop Mode(sched_stores=True) or --tag"),
        (
            "more launches (--launches all or 0:20, from a program)",
            'more launches (launches="all" or "0:20", from a program)',
        ),
        ("--launches all keeps every launch", 'launches="all" keeps every launch'),
        ("insert with --iter-records two", 'insert with iter_records="two"'),
        ("--budget 120 or more", "budget=120 or more"),
        ("pair them: --renamed old-1=new.2", 'pair them: renamed={"old-1": "new.2"}'),
        ("--renamed: A has no kernel k", "renamed: A has no kernel k"),
        ("select fewer with --at", "select fewer with at="),
        ("record again with --ctas all, or leave --cta out", 'record again with ctas="all", or leave --cta out'),
        (
            "save them: kprof-inject profile --at loop -- PROG; or --at",
            "save them: kprof-inject profile --at loop -- PROG; or at=",
        ),
        ("'kprof-inject list --kernel X'; see --kernel", "'kprof-inject list --kernel X'; see kernel="),
    ],
)
def test_options_are_arguments(text: str, words: str) -> None:
    assert python_words(text) == words == python_words(words)


def test_each_option_and_its_argument_exist() -> None:
    modules = (
        importlib.import_module(f"kprof_inject.cli.{module.name}") for module in pkgutil.iter_modules(cli.__path__)
    )
    commands = [module.command for module in modules if isinstance(getattr(module, "command", None), click.Command)]
    options = {name for command in commands for option in command.params for name in option.opts}
    functions: list[Callable[..., object]] = [kprof_inject.profile, kprof_inject.diff, Results.explain]
    arguments = {name for function in functions for name in inspect.signature(function).parameters}
    assert options >= {*ARGUMENTS, *(option for named in ARGUMENTS_OF.values() for option in named)}
    assert {*ARGUMENTS.values()} - arguments == {"fail_above"}
    assert "fail_above: " in inspect.getsource(pytest_plugin)
    for function, named in ARGUMENTS_OF.items():
        assert {*named.values()} <= {*inspect.signature(getattr(kprof_inject, function)).parameters}
    assert {field.name for field in fields(kprof_inject.Mode)} == {*ARGUMENTS_OF["Mode"].values()}


def array(folder: Path) -> Path:
    np.save(folder / "buffer.npy", np.zeros(8, dtype=np.uint64))
    return folder / "buffer.npy"


def of_kernel(folder: Path, name: str) -> Results:
    timeline = known_launch(folder / name)
    kernel = replace(timeline.launch.kernel, name=name, variant=name)
    return Results([replace(timeline, launch=replace(timeline.launch, kernel=kernel))])


CALLS: dict[str, tuple[Callable[[Path], object], str]] = {
    "explain": (lambda _: kprof_inject.load(CAPTURE).explain(budget=1), "budget="),
    "diff": (lambda folder: kprof_inject.diff(CAPTURE, CAPTURE, renamed={"k": "k"}), "renamed={"),
    "other kernels": (
        lambda folder: kprof_inject.diff(of_kernel(folder, "old"), of_kernel(folder, "new")),
        'renamed={"OLD": "NEW"}',
    ),
    "load": (lambda folder: kprof_inject.load(array(folder)), "read_buffer(format=...)"),
    "read_buffer": (lambda folder: kprof_inject.read_buffer(array(folder)), "read_buffer(format=...)"),
    "profile": (
        lambda folder: kprof_inject.profile(
            "loop --tag k=%k", mode=kprof_inject.Mode(sched_stores=True), folder=folder / "workspace"
        ),
        "Mode(sched_stores=True)",
    ),
}


@pytest.mark.parametrize(("call", "argument"), CALLS.values(), ids=CALLS)
def test_what_a_user_of_python_gets(tmp_path: Path, call: Callable[[Path], object], argument: str) -> None:
    with pytest.raises(KprofError) as refused:
        call(tmp_path)
    assert argument in refused.value.hint
    assert not re.search(r"--(?!tag)[a-z]", str(refused.value))


def test_the_number_in_a_hint_can_be_given() -> None:
    results = kprof_inject.load(CAPTURE)
    with pytest.raises(KprofError) as refused:
        results.explain(budget=1)
    found = re.search(r"budget=(\d+)", refused.value.hint)
    assert found and results.explain(budget=int(found[1]))


def test_places_in_arguments_have_their_names() -> None:
    with pytest.raises(KprofError) as refused:
        kprof_inject.profile(launches="5:3")
    assert refused.value.render().startswith("launches:1:3: error: ")


def test_the_command_line_keeps_its_options() -> None:
    with pytest.raises(KprofError, match="are too few") as refused:
        in_whole_rings(8, 4)
    assert "--buffer-bytes" in refused.value.hint
    with pytest.raises(KprofError) as written, in_python_words():
        in_whole_rings(8, 4)
    assert written.value.hint == python_words(refused.value.hint) != refused.value.hint
