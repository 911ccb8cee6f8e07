"""``trace --hooks``: a file of users' functions, and what is said where it is wrong."""

from __future__ import annotations

import json

import pytest
from command_line import CommandLine
from ranks import BEGIN_NS, Timer, save_process

HOOK = """
from kprof_inject import export

@export.scope_args
def twice(launch, scopes):
    return {"twice": 2 * scopes["scope"]}
"""


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
    assert "--hooks is for timelines, and a .csv file is not one" in ended.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "error: hooks.py defines no hook\nhint: decorate functions with"),
        ("x = (", "hooks.py:1:5: error: not Python: '(' was never closed\n  x = (\n      ^"),
        (
            "\n  \nraise KeyError('k')",
            "hooks.py:3:1: error: hooks.py failed: KeyError: 'k'\n  raise KeyError('k')\n  ^",
        ),
        (
            "from kprof_inject import export\n@export.arrows\ndef a(launch):\n    return launch.b",
            "hooks.py:4:5: error: the hook a failed: AttributeError: 'Timeline' object has no attribute 'b'",
        ),
        ("raise SystemExit", "hooks.py:1:1: error: hooks.py failed: SystemExit: \n  raise SystemExit\n  ^"),
        ("open('flops.csv')", "hooks.py:1:1: error: hooks.py failed: FileNotFoundError: "),
        ("import broken", "broken.py:2:1: error: not Python: "),
        (
            "from kprof_inject import export\n@export.counters\ndef a(launch):\n    return {}",
            "hooks.py:2:1: error: counters have a unit\n  @export.counters\n  ^\nhint: write @export.counters(unit=",
        ),
    ],
)
def test_errors_point_into_the_file(captured: CommandLine, text: str, said: str) -> None:
    captured.write("hooks.py", text)
    captured.write("broken.py", "pass\n)")
    ended = captured("trace", "capture", "-o", "trace.json", "--hooks", "hooks.py")
    assert said in ended.stderr
    assert ended.exit_code == 1
    assert not (captured.folder / "trace.json").exists()
