"""The commands in Markdown pages: which there are, and running a page's as its reader would.

A block that is fenced as ``console`` has commands, on lines that begin with ``$ `` (and go on after ``> ``). Below each
stands what it prints, if the page shows that: an ellipsis (…) in it stands for anything, lines too. A block whose first
line is ``# needs a GPU`` is for machines that have one. A fenced block of any other kind whose first line is a file's
name in a comment (``# program.py``) is a file that the reader saves before anything else.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from command_line import forked
from programs.child import GUARD_S, REPO, SMALL_TORCH, clean_environment, python_path

from kprof_inject.workspace_folder import DEMO_WORKSPACE

PAGES = [REPO / "README.md", *sorted((REPO / "docs").glob("*.md"))]

_FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
_FILE_NAME = re.compile(r"^# ([\w./-]+\.\w+)$")
_NEEDS_GPU = "# needs a GPU"
_OURS = re.compile(r"^\s*(\$ )?(kprof-inject|python3?|proton-viewer)(\s|$)")
_DEMO = "kprof-inject demo"
# It serves until someone ends it, from when it says at which address of this machine.
_SERVES = re.compile(r"^kprof-inject trace\b.* --open\b")
_ADDRESS = re.compile(rb"^https://.*\b127\.0\.0\.1:9001/.*\n", re.MULTILINE)
# Words that a shell does not change: such a command may run in a fork of this process.
_PLAIN = re.compile(r"kprof-inject(?! doctor)( ([\w./:=+-]+|'[^']*'))+")
# Pages show some of these again, and none changes what they read.
_READS_DEMO = re.compile(r"kprof-inject (report|diff) kprof_demo/captures/")
_ran: dict[str, tuple[int, str]] = {}
# Of whoever runs the tests: a browser would open on their screen.
_SCREEN = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@dataclass(frozen=True, slots=True)
class Block:
    """A code block: the number of its first line, what stands behind the fence (empty if it is indented), its lines."""

    line: int
    info: str
    lines: tuple[str, ...]

    @property
    def is_console(self) -> bool:
        return self.info.split()[:1] == ["console"]

    @property
    def needs_gpu(self) -> bool:
        return self.is_console and self.lines[:1] == (_NEEDS_GPU,)


@dataclass(frozen=True, slots=True)
class Command:
    """``output`` is what the page shows of it, empty if nothing."""

    line: int
    text: str
    output: str
    needs_gpu: bool


def blocks_of(page: str) -> Iterator[Block]:
    """The code blocks of a page, fenced and indented ones; those in lists are fenced."""
    fence, info, begin, lines = "", "", 0, list[str]()
    for number, line in enumerate([*page.splitlines(), ""], 1):
        found = _FENCE.match(line)
        if fence:
            if found and found["fence"].startswith(fence) and not found["info"].strip():
                yield Block(begin, info, tuple(lines))
                fence, lines = "", []
            else:
                lines.append(line)
        elif found:
            fence, info, begin = found["fence"], found["info"].strip(), number + 1
        elif line.startswith("    "):
            begin = begin if lines else number
            lines.append(line[4:])
        elif lines:
            yield Block(begin, "", tuple(lines))
            lines = []
    if fence:
        raise ValueError(f"the block at line {begin} has no end")


def commands_of(page: str) -> list[Command]:
    """The commands of the page's console blocks, in their order."""
    return [command for block in blocks_of(page) if block.is_console for command in _commands_in(block)]


def _commands_in(block: Block) -> Iterator[Command]:
    begins = [number for number, line in enumerate(block.lines) if line.startswith("$ ")]
    for begin, end in zip(begins, [*begins[1:], len(block.lines)], strict=True):
        text, shown = [block.lines[begin][2:]], list(block.lines[begin + 1 : end])
        while shown and (shown[0] == ">" or shown[0].startswith("> ")):
            text.append(shown.pop(0)[2:])
        yield Command(block.line + begin, "\n".join(text), "\n".join(shown).strip("\n"), block.needs_gpu)


def files_of(page: str) -> dict[str, str]:
    """The files that the page has its reader save: texts by name."""
    named = [(_FILE_NAME.match(block.lines[0]), block) for block in blocks_of(page) if block.info and block.lines]
    return {name[1]: "\n".join(block.lines) + "\n" for name, block in named if name and not block.is_console}


def stray_commands(page: str) -> list[tuple[int, str]]:
    """Lines of other blocks that look like commands: nothing would run them."""
    return [
        (number, line)
        for block in blocks_of(page)
        for number, line in enumerate(block.lines, block.line)
        if _OURS.match(line) and (not block.is_console or not line.startswith("$ "))
    ]


def matches(shown: str, printed: str) -> bool:
    """Whether a command printed what the page shows; blanks at the ends of lines do not count."""
    shown, printed = ("\n".join(["", *map(str.rstrip, text.strip("\n").splitlines()), ""]) for text in (shown, printed))
    # An ellipsis on a line of its own may stand for no line at all.
    first, *rest = re.split("([\0\1])", shown.replace("\n…\n", "\n\0").replace("…", "\1"))
    pairs = list(zip(rest[::2], map(re.escape, rest[1::2]), strict=True))
    skipped = {"\0": "(?:[^\n]*\n)*?", "\1": ".*?"}
    # What is found first leaves most for the rest, so nothing is tried again; but the last part is at the end.
    found = "".join(f"(?>{skipped[kind]}{part})" for kind, part in pairs[:-1])
    end = "".join(f"{skipped[kind]}{part}" for kind, part in pairs[-1:])
    return re.fullmatch(re.escape(first) + found + end, printed, re.DOTALL) is not None


class Reader:
    """Follows a page in ``folder``, with the examples of this checkout in it. Only commands that need a GPU have it."""

    def __init__(self, folder: Path, page: str = "") -> None:
        self.folder = folder
        for name, text in files_of(page).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        shutil.copytree(REPO / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        commands = folder / "home" / "bin"
        commands.mkdir(parents=True)
        for name, module in (("kprof-inject", " -m kprof_inject"), ("python", ""), ("python3", "")):
            (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
            (commands / name).chmod(0o755)
        path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._gpu = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}
        clean = {name: value for name, value in clean_environment(folder).items() if name not in _SCREEN}
        modules = python_path(SMALL_TORCH)
        self._environment = {**clean, "PATH": path, "PYTHONPATH": modules, "PYTHONUNBUFFERED": "1"}

    def follow(self, command: Command) -> None:
        """Run the command. Raises AssertionError if it fails, or does not print what the page shows."""
        code, printed = self.run(command)
        assert code == 0, f"line {command.line}: {command.text}\nended with {code}:\n{printed}"
        if command.output:
            shown = f"printed:\n{printed}\nshown:\n{command.output}"
            assert matches(command.output, printed), f"line {command.line}: {command.text}\n{shown}"

    def run(self, command: Command) -> tuple[int, str]:
        """The exit code, and all that was printed, as a terminal shows it."""
        if command.text == _DEMO and not command.needs_gpu and not (self.folder / DEMO_WORKSPACE).exists():
            workspace, printed = _demo()
            shutil.copytree(workspace, self.folder / DEMO_WORKSPACE)
            return 0, printed
        if _READS_DEMO.match(command.text) and _PLAIN.fullmatch(command.text) and not command.needs_gpu:
            if command.text not in _ran:
                _ran[command.text] = self._run(command)
            return _ran[command.text]
        return self._run(command)

    def _run(self, command: Command) -> tuple[int, str]:
        environment = dict(self._environment)
        if _PLAIN.fullmatch(command.text) and not command.needs_gpu and not _SERVES.match(command.text):
            ended = forked(shlex.split(command.text)[1:], self.folder, environment, in_one=True)
            return ended.exit_code, ended.stdout
        if command.needs_gpu:
            environment["PYTHONPATH"] = python_path()
            for name, value in self._gpu.items():
                environment.pop(name)
                environment |= {name: value} if value is not None else {}
        child = subprocess.Popen(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", command.text],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        try:
            return self._end_of(child, command)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()

    def _end_of(self, child: subprocess.Popen[bytes], command: Command) -> tuple[int, str]:
        printed = b""
        if _SERVES.match(command.text):
            assert child.stdout is not None
            while not _ADDRESS.search(printed) and (line := child.stdout.readline()):
                printed += line
            # The reader's Ctrl-C, which pages do not show, nor what is said to it.
            os.killpg(child.pid, signal.SIGINT)
        rest, _ = child.communicate(timeout=GUARD_S)
        if _ADDRESS.search(printed) and child.returncode == 130:
            return 0, printed.decode()
        return child.returncode, (printed + rest).decode()


@cache
def _demo() -> tuple[Path, str]:
    """The workspace that the demo makes in an empty folder, and what it prints: many pages begin with it."""
    folder = Path(tempfile.mkdtemp(prefix="demo"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    code, printed = Reader(folder)._run(Command(0, _DEMO, "", needs_gpu=False))
    assert code == 0, printed
    return folder / DEMO_WORKSPACE, printed
