"""Changes are found, and none where there are none, in whatever form Triton prints both sides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import pytest
from golden import FIXTURES, fixture_id, read
from printed_forms import found_between
from triton_oracle import one_of_each_kernel, printed_by_triton, triton

MODULES = [
    pytest.param(path, marks=pytest.mark.exhaustive if (number - 4) % 14 else pytest.mark.triton)
    for number, path in enumerate(one_of_each_kernel())
]


@pytest.mark.parametrize("path", MODULES, ids=fixture_id)
def test_no_form_of_a_module_that_the_installed_triton_prints_has_changes(path: Path) -> None:
    text = read(path)
    forms = printed_by_triton(text)
    assert len(forms) >= 3
    found = {form: found_between(text, other) for form, other in forms.items()}
    assert {form: changes for form, (changes, _) in found.items() if changes} == {}
    alike = {form: lines for form, (_, lines) in found.items() if is_generic(form) is ('"builtin.module"' in text)}
    assert {form: lines for form, lines in alike.items() if lines} == {}


def is_generic(form: str) -> bool:
    """Lines of MLIR's generic form are not compared with those of the usual one; facts are."""
    return "generic" in form


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    """An edit of the first place that a pattern matches."""
    return lambda text: re.sub(pattern, by, text, count=1)


# The edit of a module as Triton prints it by default, the kernel, and the change that must be named, if it is one that
# a comparison looks for.
SEEDS: dict[str, tuple[Callable[[str], str], str, str]] = {
    "another number of stages": (lambda text: re.sub(r"\{num = 2 : i32\}", "{num = 0 : i32}", text), "matmul", "ahead"),
    "another type of floats": (lambda text: re.sub(r"(?<![bt])f16\b", "bf16", text), "matmul", "operand"),
    "a load without its mask": (replaced(r"(tt\.load %\w+), %\w+(, %\w+)?( :)", r"\1\3"), "softmax", ""),
    "a copy without its mask": (replaced(r" mask %\w+ other %\w+", ""), "matmul", ""),
    "a store without its mask": (replaced(r"(tt\.store %\w+, %\w+), %\w+", r"\1"), "vector_add", ""),
    "a store of another value": (replaced(r"(tt\.store %\w+, %\w+)#0", r"\1#1"), "layer_norm_backward", ""),
    "a mask made the other way": (replaced(r"(arith\.cmpi slt), (%\w+), (%\w+)", r"\1, \3, \2"), "layer_norm", ""),
    "operands in another order": (replaced(r"(arith\.subf) (%\w+), (%\w+)", r"\1 \3, \2"), "softmax", ""),
    "operands of integers in another order": (replaced(r"(arith\.divsi) (%\w+), (%\w+)", r"\1 \3, \2"), "matmul", ""),
    "another comparison": (replaced(r"arith\.cmpi slt", "arith.cmpi sle"), "vector_add", ""),
    "another constant": (replaced(r"arith\.constant 64 : i32", "arith.constant 32 : i32"), "matmul", ""),
    "another bound of the loop": (replaced(r"(scf\.for %\w+ = )(%\w+) to (%\w+)", r"\1\3 to \2"), "matmul", ""),
    "a cache modifier": (replaced(r"(tt\.load %\w+(?:, %\w+)*)( :)", r"\1 cacheModifier = cg\2"), "vector_add", ""),
    "an eviction policy": (
        replaced(r"(tt\.load %\w+(?:, %\w+)*)( :)", r"\1 evictionPolicy = evict_first\2"),
        "vector_add",
        "",
    ),
    "a volatile load": (replaced(r"(tt\.load %\w+(?:, %\w+)*)( :)", r"\1 {isVolatile = true}\2"), "vector_add", ""),
    "another axis of the grid": (replaced(r"get_program_id x", "get_program_id y"), "vector_add", ""),
    "an argument that is no multiple": (replaced(r" \{tt\.divisibility = 16 : i32\}", ""), "vector_add", ""),
    "another operation": (replaced(r"arith\.addf", "arith.mulf"), "vector_add", ""),
    "an operation more": (replaced(r"\n( *)(%\w+)( = arith\.addf .*)", r"\n\1\2\3\n\1%more\3"), "vector_add", ""),
    "a value that goes elsewhere": (replaced(r"(scf\.yield .*)(%\w+), (%\w+)( : tensor)", r"\1\3, \2\4"), "matmul", ""),
    "more warps in a partition": (replaced(r"num_warps\(2\)", "num_warps(4)"), "ws_matmul", ""),
}


def fixture_of(kernel: str) -> str:
    folder = FIXTURES / triton.__version__ / ("cuda-100" if kernel == "ws_matmul" else "cuda-90")
    return read(next(path for path in folder.glob(f"{kernel}.ttgir*")))


@cache
def forms_of(text: str) -> dict[str, str]:
    return printed_by_triton(text)


def pairs(forms: Sequence[str]) -> Iterable[tuple[str, str]]:
    return [(forms[0], form) for form in forms if not is_generic(form)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_is_found_in_each_form(seed: str) -> None:
    edit, kernel, named = SEEDS[seed]
    text = fixture_of(kernel)
    edited = edit(text)
    assert edited != text
    if seed in ("a cache modifier", "an eviction policy") and "cache = " not in forms_of(text)["generic"]:
        pytest.skip("from Triton 3.9 on, loads have other attributes for this")
    forms_a, forms_b = forms_of(text), forms_of(edited)
    for form_a, form_b in pairs(list(forms_a)):
        changes, lines = found_between(forms_a[form_a], forms_b[form_b])
        assert lines >= 1, (form_a, form_b)
        assert named in changes if named else changes == [], (form_a, form_b, changes)
        if not named:
            assert lines <= 3, (form_a, form_b)


def test_another_number_of_warps_is_found_in_each_form() -> None:
    forms = forms_of(fixture_of("matmul"))
    for a, b in pairs(list(forms)):
        fewer = re.sub(r'("ttg\.num-warps" = )\d+', r"\g<1>2", forms[b])
        assert found_between(forms[a], fewer) == (["num_warps"], 1)
