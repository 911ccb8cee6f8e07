"""Functions that Inductor generates keep a kernel's launcher: there it is replaced, and put back."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

from kprof_inject.runtime.launch.triton_wrapping import InductorLaunchers


class Kernel:
    """A compiled kernel; ``run`` is its launcher."""

    def __init__(self) -> None:
        self.run = lambda: "Triton"


def module() -> Any:
    """Inductor's module, as far as it matters: each launcher is a function with globals of its own."""

    class TritonCompileResult:
        def __init__(self, kernel: Kernel) -> None:
            self.kernel = kernel

        def make_launcher(self) -> Any:
            scope: dict[str, Any] = {"runner": self.kernel.run}
            exec("def launcher(): return runner()", scope)
            return scope["launcher"]

    return SimpleNamespace(TritonCompileResult=TritonCompileResult)


def test_the_launcher_is_replaced_where_inductor_keeps_it() -> None:
    launchers, inductor = InductorLaunchers(), module()
    launchers.note(inductor)
    kernel, other = Kernel(), Kernel()
    first, second, others = (inductor.TritonCompileResult(each).make_launcher() for each in (kernel, kernel, other))
    ours = lambda: "ours"  # noqa: E731
    launchers.replace(kernel, kernel.run, ours)
    assert [first(), second(), others()] == ["ours", "ours", "Triton"]
    launchers.replace(kernel, kernel.run, lambda: "not present, so not replaced")
    launchers.replace(kernel, ours, kernel.run)
    assert [first(), second(), others()] == ["Triton"] * 3


def test_no_reference_keeps_a_kernel_or_a_function() -> None:
    launchers, inductor = InductorLaunchers(), module()
    launchers.note(inductor)
    kernel = Kernel()
    launcher = inductor.TritonCompileResult(kernel).make_launcher()
    gone = [weakref.ref(kernel), weakref.ref(launcher)]
    del launcher
    launchers.replace(kernel, kernel.run, None)
    del kernel
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
