"""The start-up hook in real processes: whom it reaches, what it leaves as it was, and that its faults stop none."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from programs.child import PROGRAMS, SMALL_TORCH, Ended, clean_environment, python_path, run_child
from snapshots import check

from kprof_inject.runtime import program
from kprof_inject.runtime.hook import WITHHELD
from kprof_inject.runtime.imports import INDUCTOR_AUTOTUNER
from kprof_inject.runtime.process_report import read_reports
from kprof_inject.runtime.program import program_environment
from kprof_inject.runtime.session import SESSION_VARIABLE, Session
from kprof_inject.workspace import Workspace

RUN_AND_END_WITH_7 = "print('ran'); raise SystemExit(7)"


class Dump:
    """A dump session that programs can be started in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = Workspace.create(folder / "workspace")
        self._reports = self.workspace.new_reports_folder("dump")
        session = Session("dump", str(self.workspace.folder), str(self._reports))
        session.write()
        self.session_path = session.path

    def run(
        self, *arguments: str | Path, path: str | None = None, python: str | Path = sys.executable, before: str = ""
    ) -> Ended:
        """Run Python in the session; ``path`` stands for the user's PYTHONPATH; a shell does ``before``."""
        inherited = {**clean_environment(self.folder), "PYTHONPATH": python_path() if path is None else path}
        env = program_environment(inherited, self.session_path, self.workspace.cache_folder("dump"))
        shell = ["sh", "-c", f'{before}\nexec "$@"', "sh"] if before else []
        return run_child([*shell, python, *arguments], self.folder, env=env)

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in self._reports.glob("*.json")]

    def joined(self) -> bool:
        return read_reports(self._reports).joined

    def unreached(self) -> tuple[str, ...]:
        """The Python processes that the program started without us."""
        return read_reports(self._reports).unreached


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    return Dump(tmp_path)


@pytest.fixture
def fake_triton(tmp_path: Path) -> str:
    """The user's PYTHONPATH: a Triton that has nothing, and is imported in no time, comes first."""
    (tmp_path / "fake" / "triton" / "profiler").mkdir(parents=True)
    (tmp_path / "fake" / "triton" / "__init__.py").write_text("__version__ = '3.6.0'")
    (tmp_path / "fake" / "triton" / "profiler" / "__init__.py").write_text("")
    (tmp_path / "fake" / "triton" / "profiler" / "profile.py").write_text("")
    return python_path(tmp_path / "fake")


@pytest.mark.parametrize("method", ["here", "subprocess", "spawn", "fork", "forkserver"])
def test_the_process_that_compiles_reports(dump: Dump, method: str) -> None:
    ended = dump.run(PROGRAMS / "children.py", method)
    assert ended.exit_code == 0, ended.stderr
    dumped = {
        report["pid"]: [(kernel["name"], kernel["state"]) for kernel in report["kernels"].values()]
        for report in dump.reports()
        if report["kernels"]
    }
    assert dumped == {int(ended.stdout): [("scale", "dumped")]}
    assert [kernel.name for kernel in dump.workspace.kernels()] == ["scale"]
    assert [report["errors"] for report in dump.reports() if report["errors"]] == []


def test_a_process_without_triton_is_known(dump: Dump) -> None:
    assert not dump.joined()
    dump.run("-c", "pass")
    assert dump.joined()
    assert dump.reports() == []


def test_waiting_for_triton_imports_nothing(tmp_path: Path, dump: Dump) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "sitecustomize.py").write_text("")
    program = "import sys; print(sorted(sys.modules))"
    plain = run_child([sys.executable, "-c", program], tmp_path, env={"PYTHONPATH": python_path(tmp_path / "empty")})
    assert "sitecustomize" in plain.stdout
    assert dump.run("-c", program) == plain


def test_modules_of_the_programs_own_are_what_it_imports(tmp_path: Path, dump: Dump) -> None:
    names = ("dataclasses", "functools", "inspect", "json", "pathlib", "signal", "subprocess", "token")
    (tmp_path / "lib").mkdir()
    for name in names:
        (tmp_path / "lib" / f"{name}.py").write_text("")
    program = tmp_path / "lib" / "prog.py"
    places = ", ".join(f"os.path.dirname({name}.__file__)" for name in names)
    program.write_text(f"import os, {', '.join(names)}\nprint({{{places}}})")
    ended = dump.run(program)
    assert (ended.stdout, ended.stderr) == (f"{{'{program.parent}'}}\n", "")


def test_the_names_that_it_waits_for_are_those_of_their_owners() -> None:
    tree = ast.parse((Path(program.__file__).parent / "startup" / "sitecustomize.py").read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    names = {ast.unparse(node.targets[0]): ast.unparse(node.value) for node in assigned}
    assert ast.literal_eval(names["_AWAITED"]) == ("triton", *WITHHELD, INDUCTOR_AUTOTUNER)
    assert ast.literal_eval(names["_SESSION_VARIABLE"]) == SESSION_VARIABLE


def test_outside_of_a_session_nothing_happens(tmp_path: Path) -> None:
    startup = Path(program_environment({}, tmp_path, tmp_path)["PYTHONPATH"])
    program = "import os, sys; print(len(sys.meta_path), os.execve)"
    plain = run_child([sys.executable, "-c", program], tmp_path)
    ended = run_child([sys.executable, "-c", program], tmp_path, env={"PYTHONPATH": python_path(startup)})
    assert ended == plain


def test_triton_looks_as_it_does_without_us(tmp_path: Path, dump: Dump) -> None:
    program = tmp_path / "prog.py"
    program.write_text(
        "import importlib.resources, importlib.util, inspect, pkgutil\n"
        "print(type(importlib.util.find_spec('triton').loader), len(pkgutil.get_data('triton', '__init__.py')))\n"
        "import triton\n"
        "print(triton.__spec__, vars(triton.__loader__), triton.__loader__ is triton.__spec__.loader)\n"
        "print(importlib.resources.files(triton), len(inspect.getsource(triton)))\n"
    )
    plain = run_child([sys.executable, program], tmp_path)
    assert "SourceFileLoader" in plain.stdout
    ended = dump.run(program)
    (report,) = dump.reports()
    assert report["triton_version"]
    assert report["errors"] == []
    assert re.sub("0x[0-9a-f]+", "", ended.stdout) == re.sub("0x[0-9a-f]+", "", plain.stdout)


def test_the_sitecustomize_that_it_shadows_runs_as_always(tmp_path: Path, dump: Dump) -> None:
    (tmp_path / "site").mkdir()
    shadowed = tmp_path / "site" / "sitecustomize.py"
    shadowed.write_text("print('customized')\nSETTING = 5\n")
    program = "import sitecustomize; print(sitecustomize.SETTING, sitecustomize.__file__)"
    ended = dump.run("-c", program, path=python_path(shadowed.parent))
    assert ended.stdout == f"customized\n5 {shadowed}\n"
    assert dump.joined()


def test_a_fault_of_the_shadowed_sitecustomize_is_python_s_to_report(tmp_path: Path, dump: Dump) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("raise ValueError('their own')\n")
    path = python_path(tmp_path / "site")
    plain = run_child([sys.executable, "-c", RUN_AND_END_WITH_7], tmp_path, env={"PYTHONPATH": path})
    assert "ValueError: their own" in plain.stderr
    assert dump.run("-c", RUN_AND_END_WITH_7, path=path) == plain
    assert dump.joined()


@pytest.mark.parametrize("session", [None, b'{"step": "dump"', b'{"step": "dance"}'])
def test_an_unreadable_session_is_one_line_on_stderr(dump: Dump, session: bytes | None, fake_triton: str) -> None:
    if session is None:
        dump.session_path.unlink()
    else:
        dump.session_path.write_bytes(session)
    ended = dump.run("-c", f"import triton, triton.profiler.profile; {RUN_AND_END_WITH_7}", path=fake_triton)
    assert (ended.exit_code, ended.stdout) == (7, "ran\n")
    assert ended.stderr.startswith("kprof-inject: not active in this process: ")
    assert ended.stderr.count("\n") == 1


def test_an_interpreter_without_us_says_so_and_runs(tmp_path: Path, dump: Dump, fake_triton: str) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    path = fake_triton.split(os.pathsep)[0]
    ended = dump.run("-c", f"import triton, triton.profiler.profile; {RUN_AND_END_WITH_7}", path=path, python=python)
    assert (ended.exit_code, ended.stdout) == (7, "ran\n")
    assert ended.stderr.endswith(f"{python}\n")
    check("runtime/startup_hook", ended.stderr, "an interpreter without us")


def test_a_triton_that_fails_to_import_fails_as_without_us(tmp_path: Path, dump: Dump) -> None:
    (tmp_path / "fake" / "triton").mkdir(parents=True)
    (tmp_path / "fake" / "triton" / "__init__.py").write_text("raise ImportError('no libtriton')\n")
    program = "try:\n import triton\nexcept ImportError as error:\n print(error)"
    ended = dump.run("-c", program, path=python_path(tmp_path / "fake"))
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "no libtriton\n", "")


def test_kernels_that_cannot_be_saved_do_not_stop_the_program(dump: Dump) -> None:
    # As on a full disk: what should become a folder cannot.
    dump.workspace.kernels_folder.write_text("")
    ended = dump.run(PROGRAMS / "ending.py", "7")
    assert ended == Ended(7, "7", "begins\nends\n")
    (report,) = dump.reports()
    assert [error.split(":")[0] for error in report["errors"]] == ["preparing a kernel"]


def test_the_environment_is_the_programs_but_for_the_hook_and_the_caches(tmp_path: Path) -> None:
    before = {"PATH": "/bin", "PYTHONPATH": "/theirs", "TRITON_CACHE_DIR": "/theirs/cache"}
    after = program_environment(before, tmp_path / "session.json", tmp_path / "cache")
    assert after[SESSION_VARIABLE] == str(tmp_path / "session.json")
    assert after["PYTHONPATH"].split(os.pathsep)[1:] == ["/theirs"]
    assert {name for name in after if after[name] != before.get(name)} == {
        SESSION_VARIABLE,
        "PYTHONPATH",
        "TRITON_HOME",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_STORE_BINARY_ONLY",
        *program.INDUCTOR_ENVIRONMENT,
    }
    assert all(after[name].startswith(str(tmp_path / "cache")) for name in after if name.endswith(("_HOME", "_DIR")))


# What the program starts, and whether it is reached: each says so itself. ``LIB`` is a folder of the program's own that
# has a sitecustomize.
STARTS = {
    "subprocess, with a path of its own": ("subprocess.run(python, env={**os.environ, 'PYTHONPATH': LIB})", True),
    "subprocess, after the path was changed": (
        "os.environ['PYTHONPATH'] = LIB; subprocess.run(python); assert os.environ['PYTHONPATH'] == LIB",
        True,
    ),
    "subprocess, without a path": ("del os.environ['PYTHONPATH']; subprocess.run(python)", True),
    "a shell, after the path was changed": ("os.environ['PYTHONPATH'] = LIB; os.system(' '.join(python))", True),
    "posix_spawn": ("os.waitpid(os.posix_spawn(sys.executable, python, {**os.environ, 'PYTHONPATH': LIB}), 0)", True),
    "spawnve": ("os.spawnve(os.P_WAIT, sys.executable, python, {**os.environ, 'PYTHONPATH': LIB})", True),
    "multiprocessing": (
        "os.environ['PYTHONPATH'] = LIB; from multiprocessing.util import spawnv_passfds as start;"
        "os.waitpid(start(os.fsencode(sys.executable), python, ()), 0)",
        True,
    ),
    "isolated": ("subprocess.run([sys.executable, '-sIu', *python[1:]])", False),
    "without site": ("subprocess.run([sys.executable, '-Wignore', '-S', *python[1:]])", False),
    "a cleaned environment": ("subprocess.run(python, env={'PATH': os.environ['PATH']})", False),
    "a script": ("subprocess.run(['./script'], env={})", False),
    "execve": ("os.fork() or os.execve(sys.executable, python, {}); os.wait()", False),
}


def test_each_python_that_the_program_starts_is_reached_or_named(tmp_path: Path, dump: Dump) -> None:
    child = tmp_path / "child.py"
    child.write_text("import sys; print(any('kprof' in type(f).__module__ for f in sys.meta_path))")
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable}\n{child.read_text()}")
    script.chmod(0o755)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text("print('customized', end=' ')")
    program = tmp_path / "prog.py"
    program.write_text(
        "import os, subprocess, sys\n"
        f"LIB, python, path = {str(tmp_path / 'lib')!r}, [sys.executable, {str(child)!r}], os.environ['PYTHONPATH']\n"
        "subprocess.run(['/bin/true'], env={})\n"
        "assert os.execve in os.supports_fd\n"
        + "".join(f"{start}\nos.environ['PYTHONPATH'] = path\n" for start, _ in STARTS.values())
    )
    ended = dump.run(program)
    assert ended.stderr == ""
    said = [f"{'customized ' if 'LIB' in start else ''}{reached}" for start, reached in STARTS.values()]
    assert ended.stdout.splitlines() == said
    python = f"{sys.executable} {child}"
    assert dump.unreached() == (
        f"{sys.executable} -sIu {child}",
        f"{sys.executable} -Wignore -S {child}",
        python,
        "./script",
    )


# What happens to the program's stderr before it imports Triton, and we have something to say.
WITHOUT_STDERR = {
    "full": ("exec 2>/dev/full", ""),
    "closed": ("", "os.close(2)"),
    "another file's": ("", "os.close(2); assert os.open('data', os.O_CREAT | os.O_WRONLY) == 2"),
    "None": ("", "sys.stderr = None"),
}


@pytest.mark.parametrize("case", WITHOUT_STDERR)
def test_what_cannot_be_said_is_not_the_programs_fault(tmp_path: Path, dump: Dump, fake_triton: str, case: str) -> None:
    dump.session_path.unlink()
    shell, python = WITHOUT_STDERR[case]
    program = f"import os, sys; {python or 'pass'}; import triton; print('ran')"
    ended = dump.run("-c", program, path=fake_triton, before=shell)
    assert (ended.exit_code, ended.stdout) == (0, "ran\n")
    assert not (tmp_path / "data").exists() or (tmp_path / "data").read_bytes() == b""
    assert "Error" not in ended.stderr


def test_what_is_saved_at_the_end_is_saved_after_all_that_the_program_does(dump: Dump) -> None:
    ours = "from kprof_inject.runtime.process_events import at_end; at_end(lambda: print('ours'))"
    ended = dump.run("-c", f"import atexit; atexit.register(lambda: print('theirs')); {ours}")
    assert ended == Ended(0, "theirs\nours\n", "")


# Programs that use Proton themselves

IMPORTS = {
    "after torch": "import torch\nimport triton.profiler as proton\n",
    "before torch": "import triton.profiler as proton\nimport torch\n",
    "by name": "from triton.profiler import start\nimport triton.profiler as proton\nassert start is proton.start\n",
    "its module": "import triton.profiler.profile\nimport triton.profiler as proton\n",
}

SESSION = """
import triton.profiler.language as pl
pl.enable_semantic("triton")
session = proton.start("mine", hook="triton", backend="instrumentation")
print(session)
for one in (session, 0):
    proton.deactivate(one)
    proton.activate(one)
proton.deactivate()
proton.activate()
with proton.scope("outer", {"flops": 1.0}), proton.cpu_timed_scope("timed"), proton.state("state"):
    proton.enter_scope("inner", metrics={"bytes": 2})
    proton.exit_scope("inner")
proton.enter_state("state")
proton.exit_state()
@proton.scope("called")
@proton.state("state")
@proton.profile
def bare():
    return 3
@proton.profile(name="other", backend="cupti")
def named():
    return 4
print(bare(), named())
if hasattr(proton, "data"):
    for call in (proton.data.get, proton.data.get_msgpack, proton.data.is_phase_complete, proton.data.clear):
        assert not call()
    assert not proton.data.advance_phase(session)
proton.finalize(session)
proton.finalize(0, output_format="hatchet")
proton.finalize()
"""


def run_in_dump(folder: Path, *arguments: str | Path) -> Ended:
    return Dump(folder).run(*arguments, path=python_path(SMALL_TORCH))


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=IMPORTS.keys())
def test_a_session_of_the_programs_own_never_begins(tmp_path: Path, imports: str) -> None:
    (tmp_path / "prog.py").write_text(imports + SESSION)
    ended = run_in_dump(tmp_path, "prog.py")
    assert (ended.exit_code, ended.stdout) == (0, "None\n3 4\n")
    check("runtime/proton_scripts", ended.stderr, "proton.start")
    assert sorted(os.listdir(tmp_path)) == ["home", "prog.py", "workspace"]
    assert os.listdir(tmp_path / "home") == []


def test_a_program_that_begins_none_is_told_nothing(tmp_path: Path) -> None:
    program = "import triton.profiler as p\nwith p.scope('a'):\n    print(p.start.__name__, p.profile.__name__)"
    assert run_in_dump(tmp_path, "-c", program) == Ended(0, "start profile\n", "")


def test_protons_own_command_runs_the_script(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(
        "import sys, triton.profiler as proton\n"
        "print(sys.argv[1:], proton.start())\n"
        "proton.deactivate(0)\n"
        "proton.activate(0)\n"
        "proton.finalize(0)\n"
    )
    command = ("-m", "triton.profiler.proton", "-n", "theirs", "-b", "cupti", "prog.py", "x")
    ended = run_in_dump(tmp_path, *command)
    assert (ended.exit_code, ended.stdout) == (0, "['x'] None\n"), ended.stderr
    (warning,) = (line for line in ended.stderr.splitlines() if "proton.start" in line)
    check("runtime/proton_scripts", warning, "proton.start")
    assert sorted(os.listdir(tmp_path)) == ["home", "prog.py", "workspace"]
