"""The integers that constants stand for."""

from __future__ import annotations

import pytest

from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import constant_of

PRINTED = {
    "arith.constant 5 : i32": 5,
    "arith.constant -1 : index": -1,
    "arith.constant true": True,
    'arith.constant false loc("k.py":1:1)': False,
    "arith.constant dense<64> : tensor<128x64xi32, #blocked>": 64,
    "arith.constant dense<true> : tensor<128xi1, #blocked>": True,
    "arith.constant {async_task_id = array<i32: 0, 1>} 7 : i32": 7,
    "arith.constant {async_task_id = array<i32: 0>} dense<-8> : tensor<4xi32, #blocked>": -8,
    "arith.constant {async_task_id = array<i32: 0>} false": False,
    '"arith.constant"() <{value = 5 : i32}> : () -> i32': 5,
    '"arith.constant"() <{value = true}> : () -> i1': True,
    '"arith.constant"() <{value = dense<64> : tensor<8xi32, #blocked>}> : () -> tensor<8xi32, #blocked>': 64,
    "arith.constant 1.000000e+00 : f32": None,
    "arith.constant 0xFF800000 : f32": None,
    "arith.constant dense<0xFF800000> : tensor<128xf32, #blocked>": None,
    "arith.constant dense<0.000000e+00> : tensor<128xf32, #blocked>": None,
    "arith.constant dense<[1, 2]> : tensor<2xi32, #blocked>": None,
    "arith.addi %a, %b : i32": None,
}


@pytest.mark.parametrize("line", PRINTED)
def test_a_constant_is_its_integer(line: str) -> None:
    module = parse(f"module {{\n  tt.func public @k() {{\n    %x = {line}\n    tt.return\n  }}\n}}\n")
    operation = module.operations[0].regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[0]
    found = constant_of(operation)

    assert found == PRINTED[line]
    assert isinstance(found, bool) == isinstance(PRINTED[line], bool)
