"""Two parsers, one file: where they disagree is found. And the process that Triton works in can be lost."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import fixture_id, kernel_of, read
from programs.child import python_path
from triton_oracle import installed_fixtures

from kprof_inject.capture.schema import Target
from kprof_inject.errors import KprofError
from kprof_inject.runtime.child_process import CompilerProcess
from kprof_inject.runtime.compiling.compiler_messages import Message, errors_in
from kprof_inject.runtime.compiling.module_check import check_module, module_target
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import is_running

KERNELS = ("ws_matmul", "noinline_helper", "while_if")
# They take a second each.
LARGE = ("cuda-80/attention", "hip-gfx942/attention")
CASES = [path for path in installed_fixtures() if kernel_of(path) in KERNELS or fixture_id(path).endswith(LARGE)]
HOPPER = Target("cuda", 90, 32)


@pytest.fixture(scope="module")
def compiler() -> Iterator[CompilerProcess]:
    tests = Path(__file__).parents[1]
    with pytest.MonkeyPatch.context() as patch, CompilerProcess() as process:
        patch.setenv("PYTHONPATH", python_path(tests / "runtime", tests))  # for the tasks of this file
        yield process


@pytest.mark.parametrize("path", CASES, ids=fixture_id)
def test_a_fixture_is_good(path: Path, compiler: CompilerProcess) -> None:
    check = check_module(parse(read(path)), compiler, 120)
    assert check.error is None
    assert str(check.target) == path.parent.name.replace("-", ":")
    assert check.binary_bytes


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ('module attributes {ttg.target = "cuda:100", "ttg.threads-per-warp" = 32 : i32}', "cuda:100 32"),
        ('module attributes {"ttg.threads-per-warp" = 64 : i32, "ttg.target" = "hip:gfx950"}', "hip:gfx950 64"),
    ],
)
def test_the_target_stands_in_the_modules_attributes(module: str, target: str) -> None:
    parsed = module_target(parse(module + " {\n  tt.func @k() {\n    tt.return\n  }\n}\n"))
    assert f"{parsed} {parsed.warp_size}" == target


def test_the_target_of_the_generic_form_stands_behind() -> None:
    text = '"builtin.module"() ({\n  "tt.func"() ({\n  }) : () -> ()\n}) {ttg.target = "cuda:80"} : () -> ()\n'
    assert str(module_target(parse(text))) == "cuda:80"


@pytest.mark.parametrize(
    ("written", "messages"),
    [
        (
            "loc(\"/tmp/k.ttgir\":21:12): error: custom op 'tt.x' is unknown\n",
            [Message("error", "custom op 'tt.x' is unknown", "/tmp/k.ttgir", 21, 12)],
        ),
        (
            'loc(callsite("f"("a.py":1:2) at "b.py":3:4)): error: first line.\nsecond line.\n\n#blocked = x\n',
            [Message("error", "first line.\nsecond line.", "a.py", 1, 2)],
        ),
        (
            "a.py:5:0: error: bad\n    %0 = tt.load\n    ^\na.py:5:0: note: see\nb.py:1:1: warning: w\n",
            [Message("error", "bad", "a.py", 5, 0)],
        ),
        ('loc("gr\\C3\\B6.py":1:2): error: bad\n', [Message("error", "bad", "grö.py", 1, 2)]),
        ("loc(unknown): error: bad\n<unknown>:0: error: worse\n", [Message("error", "bad"), Message("error", "worse")]),
        ("a.py:1:0: error: Failures have been detected while processing an MLIR pass pipeline\nnoise\n", []),
    ],
)
def test_the_compilers_messages_are_read_back(written: str, messages: list[Message]) -> None:
    assert errors_in(written.encode()) == messages


def die(code: int, written: Path) -> int:
    """Dies as a failed assertion of LLVM's does, with words on stderr."""
    for number in range(9):
        os.write(2, f"line {number}\n".encode())
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def sleep(pid_path: Path, written: Path) -> None:
    """Does not come back, nor does what it has started."""
    child = os.fork()
    if child:
        pid_path.write_text(f"{child}")
    time.sleep(600)


def fail(written: Path) -> None:
    sys.stderr.write("words")
    raise ValueError("of ours")


def what_is_written(written: Path) -> bytes:
    os.write(1, b"to stdout")
    return written.read_bytes()


def process_id(written: Path) -> int:
    return os.getpid()


def wait_for_the_end_of(pid: int) -> None:
    """The dead may wait for whoever adopted them."""
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(pid)


def test_each_target_has_a_process_of_its_own(compiler: CompilerProcess) -> None:
    mi300 = Target("hip", "gfx942", 64)
    first, again, other = (
        compiler.ask(process_id, time_limit_s=60, target=target) for target in (HOPPER, HOPPER, mi300)
    )
    assert first == again != other
    wait_for_the_end_of(first)


@pytest.mark.parametrize(("code", "how"), [(-6, "signal SIGABRT"), (3, "exit code 3")])
def test_a_process_that_dies_is_replaced(code: int, how: str, compiler: CompilerProcess) -> None:
    with pytest.raises(KprofError) as caught:
        compiler.ask(die, code, time_limit_s=60)
    assert caught.value.what.splitlines() == [f"the compiler died ({how})", *(f"  line {n}" for n in range(4, 9))]

    # What the dead one wrote is not the new one's.
    assert compiler.ask(what_is_written, time_limit_s=60) == b"to stdout"


def test_a_process_that_hangs_is_ended_with_all_it_started(compiler: CompilerProcess, tmp_path: Path) -> None:
    pid_path = tmp_path / "pid"
    with pytest.raises(KprofError, match="did not finish in time"):
        compiler.ask(sleep, pid_path, time_limit_s=3)
    wait_for_the_end_of(int(pid_path.read_text()))
    assert compiler.ask(what_is_written, time_limit_s=60) == b"to stdout"


def test_a_fault_of_ours_in_the_process_is_told(compiler: CompilerProcess) -> None:
    with pytest.raises(KprofError) as caught:
        compiler.ask(fail, time_limit_s=60)
    assert caught.value.what == "ValueError: of ours"
