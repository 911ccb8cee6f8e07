"""The cell magic, in a shell that has as much of IPython's as it needs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import kprof_inject
from kprof_inject import api
from kprof_inject.errors import KprofError


class Shell:
    """Runs cells, and keeps the magic functions that are registered."""

    def __init__(self) -> None:
        self.magics: dict[str, Callable[[str, str], Any]] = {}
        self.user_ns: dict[str, Any] = {}

    def register_magic_function(self, function: Callable[[str, str], Any], magic_kind: str, magic_name: str) -> None:
        assert magic_kind == "cell"
        self.magics[magic_name] = function

    def run_cell(self, cell: str) -> SimpleNamespace:
        try:
            exec(cell, self.user_ns)
        except ZeroDivisionError:
            return SimpleNamespace(success=False)
        return SimpleNamespace(success=True)


class Profile:
    """Notes what it was asked for, and whether the cell ran inside of it."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.is_open: bool | None = None

    def __enter__(self) -> Profile:
        self.is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(api, "profile", Profile)
    made = Shell()
    kprof_inject.load_ipython_extension(made)
    return made


def test_a_cell_runs_in_a_profile_with_the_arguments(shell: Shell) -> None:
    prof = shell.magics["kprof"]("--at loop --at 'op(*wait*)' --kernel 'mat*' --launches 0:20", "x = 6 * 7")
    assert prof.given == {"at": ["loop", "op(*wait*)"], "kernel": "mat*", "launches": "0:20", "ctas": "auto"}
    assert shell.user_ns["x"] == 42 and shell.user_ns["prof"] is prof and prof.is_open is False


def test_an_error_in_the_cell_ends_the_profile(shell: Shell) -> None:
    assert shell.magics["kprof"]("", "1 / 0") is None
    assert shell.user_ns["prof"].is_open is False


def test_other_words_are_an_error_with_a_hint(shell: Shell) -> None:
    with pytest.raises(KprofError, match="unrecognized arguments: --all") as refused:
        shell.magics["kprof"]("--all", "x = 1")
    assert "%%kprof" in (refused.value.hint or "") and "x" not in shell.user_ns
