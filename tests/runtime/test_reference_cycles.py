"""Nothing of ours keeps what the program has dropped."""

from __future__ import annotations

import ast
import gc
import weakref
from pathlib import Path

import kprof_inject
from kprof_inject.runtime.launch.triton_wrapping import around_load
from kprof_inject.runtime.process_events import Guarded

RUNTIME = Path(kprof_inject.__file__).parent / "runtime"


def suppressing(tree: ast.AST) -> list[str]:
    """The generators that are made context managers, and catch what is raised inside without raising again."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    managers = [one for one in functions if any("contextmanager" in ast.unparse(mark) for mark in one.decorator_list)]
    return [one.name for one in managers if any(map(_suppresses, ast.walk(one)))]


def _suppresses(block: ast.AST) -> bool:
    if not isinstance(block, ast.Try):
        return False
    yields = any(isinstance(one, ast.Yield) for part in block.body for one in ast.walk(part))
    return yields and any(not isinstance(one.body[-1], ast.Raise) for one in block.handlers)


def test_no_generator_catches_what_a_launch_raises() -> None:
    """From Python 3.12 on, its frame would be in a cycle with the exception, and lead to the program's frames."""
    found = {path.name: suppressing(ast.parse(path.read_text())) for path in RUNTIME.rglob("*.py")}
    assert {name: names for name, names in found.items() if names} == {}
    example = (
        "@contextmanager\ndef guard():\n    try:\n        yield\n    except Exception as error:\n        note(error)\n"
    )
    assert suppressing(ast.parse(example)) == ["guard"]


class Tensor:
    pass


def test_what_is_guarded_is_kept_by_nothing() -> None:
    seen = []

    def launch() -> weakref.ref[Tensor]:
        tensor = Tensor()
        with Guarded(lambda error: seen.append(str(error))):
            fail(tensor)
        return weakref.ref(tensor)

    gc.disable()
    try:
        assert launch()() is None
    finally:
        gc.enable()
    assert seen == ["a fault"]


def fail(tensor: Tensor) -> None:
    raise ValueError("a fault")


def test_a_kernel_that_is_never_loaded_goes_when_the_program_drops_it() -> None:
    class Kernel:
        pass

    kernel = Kernel()
    around_load(kernel, lambda kernel, load: load())
    kept = weakref.ref(kernel)
    del kernel
    assert kept() is None
