"""What leaves through the console: no text of a capture, a module or an argument is a command to the terminal."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from buffers import make_editable
from golden import FIXTURES, read
from programs.child import REPO
from rich.table import Table

from kprof_inject.cli.console import print_error, say, say_table, table_console
from kprof_inject.cli.main import main
from kprof_inject.errors import KprofError, Position

DEMO = REPO / "tests/captures/matmul"
SOFTMAX = FIXTURES / "3.6.0/cuda-90/softmax.ttgir"
# A window's title, a colour by ESC and by C1's CSI, a cleared screen, text backwards, half a letter; and rich's markup.
COMMANDS = "\x1b]0;owned\x07\x1b[31m\x9b2J\r\x7f\u202e\u2066\udc80"
HOSTILE = f"{COMMANDS}[red]:bomb:"
# What a file can hold of it, whose text is UTF-8.
SAVED = HOSTILE.replace("\udc80", "")


def commands_in(text: str) -> set[str]:
    return {character for character in text if not (character.isprintable() or character in "\n\t")}


def test_messages_and_errors_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    print_error(KprofError(f"first\n  second {HOSTILE}", where=Position(HOSTILE, 3, 17, f"\t{HOSTILE}x"), hint=HOSTILE))
    shown = capsys.readouterr().err
    assert commands_in(shown) == set()
    assert shown.count("[red]:bomb:") == 5
    assert "\n  second  " in shown


def test_a_caret_stays_below_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"\tname\x1b\x9b = {COMMANDS}here"
    print_error(KprofError("wrong", where=Position("file", 1, text.index("here") + 1, text)))
    _, line, carets = capsys.readouterr().err.splitlines()
    assert line.index("here") == carets.index("^")


def test_tables_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    for show in (say_table, table_console().print):
        table = Table(HOSTILE)
        table.add_row(HOSTILE)
        show(table)
    shown = capsys.readouterr()
    for stream in (shown.out, shown.err):
        assert commands_in(stream) == set()
        assert stream.count("[red]:bomb:") == 2
        assert len({len(line) for line in stream.splitlines()}) == 1


def run(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["kprof-inject", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    return code if isinstance(code, int) else 0


def named_by_a_stranger(values: Any) -> Any:
    """The values of a JSON file with something behind the texts that people read."""
    if isinstance(values, list):
        return [named_by_a_stranger(value) for value in values]
    if not isinstance(values, dict):
        return values
    changed = {key: named_by_a_stranger(value) for key, value in values.items()}
    for key in ("name", "host", "triton", "torch", "python"):
        if isinstance(changed.get(key), str):
            changed[key] += SAVED
    return changed


@pytest.fixture
def strangers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two captures and modules of somebody else's."""
    for side in "ab":
        capture = Path(shutil.copytree(DEMO, tmp_path / side))
        make_editable(capture)
        for path in capture.glob("*/*.json"), capture.glob("*/kernels/*/kernel.json"):
            for file in path:
                file.write_text(json.dumps(named_by_a_stranger(json.loads(file.read_bytes()))))
        (next(capture.glob("*/end.json"))).write_text(json.dumps({"left_out": {SAVED: 3}, "launches": {}}))
    text = read(SOFTMAX).replace('softmax.py"', f'softmax{SAVED}.py"')
    (tmp_path / "module.ttgir").write_text(text)
    broken = text.replace("scf.for", f"scf.for {SAVED}", 1)
    (tmp_path / "broken.ttgir").write_text(broken)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "a"),
        ("report", HOSTILE),
        ("diff", "a", "b"),
        ("diff", "a", "b", "--renamed", f"{HOSTILE}=x"),
        ("trace", "a", "-o", "trace.json", "--kernel", HOSTILE),
        ("list", "module.ttgir"),
        ("list", "broken.ttgir"),
        ("insert", "module.ttgir", "--diff"),
        ("insert", "module.ttgir", "--at", f"func={HOSTILE}", "--dry-run"),
        ("insert", "module.ttgir", "--at", HOSTILE),
        (HOSTILE,),
        ("report", f"--{HOSTILE}"),
        ("trace", "a", "--layout", HOSTILE),
        ("run", "ws", "--launches", HOSTILE, "--", "true"),
    ],
    ids=lambda arguments: " ".join(arguments).replace(HOSTILE, "HOSTILE"),
)
def test_commands_show_text(
    strangers_folder: Path,
    arguments: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(arguments, monkeypatch)
    shown = capsys.readouterr()
    assert commands_in(shown.out + shown.err) == set()
    assert "[red]" in shown.out + shown.err
