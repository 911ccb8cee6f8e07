"""Whether a kernel does the same work with other values: they may be data, but decide nothing."""

from __future__ import annotations

import pytest
from removal_kernels import DIVIDED, kernel, last_store, named

from kprof_inject.ttgir.influence import objection_to_other_values

_TO_INDEX = f"""{DIVIDED}
      %index = arith.fptosi %g : tensor<512xf32, #blocked> to tensor<512xi32, #blocked>"""
_MASK = f"""{DIVIDED}
      %mask = arith.cmpf ogt, %g, %zero : tensor<512xf32, #blocked>"""


@pytest.mark.parametrize(
    "body",
    [
        DIVIDED,
        f"{_TO_INDEX}\n      %unused = arith.addi %index, %range : tensor<512xi32, #blocked>",
        "%positive = arith.cmpf ogt, %g, %zero : tensor<512xf32, #blocked>\n"
        "      %y = arith.select %positive, %value, %zero : tensor<512xi1, #blocked>, tensor<512xf32, #blocked>",
    ],
)
def test_data_may_have_other_values(body: str) -> None:
    module = kernel(body)
    assert objection_to_other_values(module, [named(module, "g")]) == ""
    assert objection_to_other_values(module, [named(module, "part"), named(module, "y")]) == ""


@pytest.mark.parametrize(
    ("body", "concerned"),
    [
        (
            f"{_TO_INDEX}\n      %at = tt.addptr %xs, %index : tensor<512x!tt.ptr<f32>, #blocked>, "
            "tensor<512xi32, #blocked>\n      %more = tt.load %at : tensor<512x!tt.ptr<f32>, #blocked>",
            "tt.addptr in TTGIR line",
        ),
        (f"{_MASK}\n      tt.store %x_at, %value, %mask : tensor<512x!tt.ptr<f32>, #blocked>", "tt.store"),
        (f"{_MASK}\n      %more = tt.load %x_at, %mask : tensor<512x!tt.ptr<f32>, #blocked>", "tt.load"),
        (
            f"{DIVIDED}\n      %true = arith.constant dense<true> : tensor<512xi1, #blocked>\n"
            "      %old = tt.atomic_rmw fadd, acq_rel, gpu, %x_at, %g, %true : (tensor<512x!tt.ptr<f32>, #blocked>, "
            "tensor<512xf32, #blocked>, tensor<512xi1, #blocked>) -> tensor<512xf32, #blocked>",
            "tt.atomic_rmw",
        ),
        (
            f"{DIVIDED}\n      %small = arith.cmpf olt, %acc, %none : f32\n"
            "      scf.if %small {\n        tt.store %x_at, %value : tensor<512x!tt.ptr<f32>, #blocked>\n      }",
            "scf.if",
        ),
        (
            f"{DIVIDED}\n      %small = arith.cmpf olt, %acc, %none : f32\n      llvm.intr.assume %small : i1",
            "llvm.intr.assume",
        ),
        (
            f'{DIVIDED}\n      tt.print "g" {{hex = false, isSigned = array<i32: 0>}} : %g : tensor<512xf32, #blocked>',
            "tt.print",
        ),
    ],
)
def test_what_decides_may_not(body: str, concerned: str) -> None:
    module = kernel(body)
    assert concerned in objection_to_other_values(module, [named(module, "g")])


def test_the_number_of_iterations_may_not() -> None:
    end = """%count = arith.fptosi %sum : f32 to i32
    scf.for %i = %c0 to %count step %c512  : i32 {
      tt.store %out, %none : !tt.ptr<f32>
    }"""
    module = kernel(end=end)
    assert "scf.for" in objection_to_other_values(module, [named(module, "part")])


def test_what_was_stored_may_be_loaded_again() -> None:
    end = """%again = tt.load %out : !tt.ptr<f32>
    %is_done = arith.cmpf ogt, %again, %none : f32
    tt.store %out, %none, %is_done : !tt.ptr<f32>"""
    module = kernel(end=end)
    store = next(one for one in module.walk() if one.name == "tt.store")
    assert "tt.store" in objection_to_other_values(module, [named(module, "y")])
    assert "tt.store" in objection_to_other_values(module, [store])


def test_indices_are_no_data() -> None:
    end = "%i = tt.load %table : !tt.ptr<i32>\n    tt.store %table, %i : !tt.ptr<i32>"
    module = kernel(end=end)
    for operation in (named(module, "i"), last_store(module)):
        assert "does not give floating-point numbers" in objection_to_other_values(module, [operation])


def test_helpers_are_not_followed() -> None:
    module = kernel(end="tt.call @helper() : () -> ()")
    assert "not inlined" in objection_to_other_values(module, [named(module, "g")])
