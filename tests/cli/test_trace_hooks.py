"""``trace --hooks``: a file of users' functions, and what is said where it is wrong."""

from __future__ import annotations

import json

import pytest
from command_line import CommandLine
from ranks import BEGIN_NS, Timer, save_process
from snapshots import check

HOOK = """
from kprof_inject import export

@export.scope_args
def twice(launch, scopes):
    return {"twice": 2 * scopes["scope"]}
"""
ARROWS = "from kprof_inject import export\n@export.arrows\ndef a(launch):\n"


@pytest.fixture
def captured(kprof: CommandLine) -> CommandLine:
    timer = Timer(5_000_000)
    save_process(kprof.folder, "capture/1", [(timer, BEGIN_NS)], [timer.reading(BEGIN_NS)])
    return kprof


def test_its_functions_add_to_a_timeline_and_not_to_a_table(captured: CommandLine) -> None:
    captured.write("hooks.py", HOOK)
    captured.write("helper.py", "from kprof_inject import export")
    captured.write("others.py", "from helper import export\n@export.arrows\ndef none(launch):\n    return [], []")
    hooks = ("--hooks", "hooks.py", "--hooks", "others.py")
    assert captured("trace", "capture", "-o", "trace.json", *hooks).exit_code == 0
    events = json.loads(captured.read("trace.json"))["traceEvents"]
    assert [event["args"]["twice"] for event in events if event.get("cat") == "func"] == [0]

    ended = captured("trace", "capture", "-o", "scopes.csv", "--hooks", "hooks.py")
    assert ended.exit_code == 2
    check("cli/trace_hooks", ended.stderr, "scopes.csv")


@pytest.mark.parametrize(
    ("case", "text", "place"),
    [
        ("no hook", "", "error: hooks.py "),
        ("not Python", "x = (", "hooks.py:1:5: error: "),
        ("KeyError", "\n  \nraise KeyError('k')", "hooks.py:3:1: error: "),
        ("an import that is broken", "import broken", "broken.py:2:1: error: "),
        ("no unit", f"{ARROWS}    return []".replace("arrows", "counters"), "hooks.py:2:1: error: "),
    ],
)
def test_errors_point_into_the_file(captured: CommandLine, case: str, text: str, place: str) -> None:
    captured.write("hooks.py", text)
    captured.write("broken.py", "pass\n)")
    ended = captured("trace", "capture", "-o", "trace.json", "--hooks", "hooks.py")
    assert place in ended.stderr
    assert ended.exit_code == 1
    check("cli/trace_hooks", ended.stderr, case)
    assert not (captured.folder / "trace.json").exists()
