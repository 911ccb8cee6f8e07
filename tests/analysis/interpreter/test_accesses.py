"""Accesses to global memory: how many elements, which bytes, and by which way."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from brute_force import Kernel, assert_bytes_right, assert_right, run
from replacing import replace
from text_cases import facts_in

from kprof_inject.analysis.interpreter import axis_arrays
from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.axis_arrays import CTA, AxisArray
from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.capture.scopes import ScopeTable

FORMS = facts_in(Path(__file__).with_name("access_forms.txt"))
CONSTANTS = "".join(f"    %c{number} = arith.constant {number} : i32\n" for number in (-2, 0, 1, 2, 3, 4, 6, 8))
STRIDES = """
    %one = arith.constant 1 : i64
    %wide = arith.constant 10 : i64
    %wide_bytes = arith.constant 20 : i64
"""
CORNER = """
    %true = arith.constant true
    %x = tt.get_program_id x : i32
    %y = tt.get_program_id y : i32
    %row = arith.muli %x, %c4 : i32
    %at = arith.muli %y, %c8 : i32
    %column = arith.addi %at, %c-2 : i32
"""
LOADS = """
    %v = tt.descriptor_load %d[%row, %column] : !tt.tensordesc<tensor<4x8xf16, #s>> -> tensor<4x8xf16, #l>
    tt.descriptor_store %d[%column, %row], %v : !tt.tensordesc<tensor<4x8xf16, #s>>, tensor<4x8xf16, #l>
    %few = arith.cmpi slt, %x, %c2 : i32
    ttng.async_tma_copy_global_to_local %d[%row, %column] %to, %bar, %few : \
!tt.tensordesc<tensor<4x8xf16, #s>>, !ttg.memdesc<1xi64, #s, #smem, mutable> -> \
!ttg.memdesc<4x8xf16, #s, #smem, mutable>
    tt.descriptor_reduce add, %d[%row, %column], %v : !tt.tensordesc<tensor<4x8xf16, #s>>, tensor<4x8xf16, #l>
    ttng.async_tma_reduce add, %d[%column, %row] %from : \
!tt.tensordesc<tensor<4x8xf16, #s>>, !ttg.memdesc<4x8xf16, #s, #smem, mutable>
    ttng.async_tma_copy_local_to_global %d[%row, %c0] %from : \
!tt.tensordesc<tensor<4x8xf16, #s>>, !ttg.memdesc<4x8xf16, #s, #smem, mutable>
"""
MADE = "    %d = tt.make_tensor_descriptor %p, [%c6, %c8], [%wide, %one] : <f16>, <tensor<4x8xf16, #s>>\n"
CREATED = """
    %where = ttg.global_scratch_alloc {alignment = 128 : i32, nbytes = 128 : i32} : !tt.ptr<i8>
    ttng.tensormap_create %where, %p, [%c8, %c4], [%c8, %c6], [%wide_bytes], [%c1, %c1] {elem_type = 6 : i32} : \
(!tt.ptr<i8>, !tt.ptr<f16>, i32, i32, i32, i32, i64, i32, i32) -> ()
    %d = ttng.reinterpret_tensor_descriptor %where : !tt.ptr<i8> to !tt.tensordesc<tensor<4x8xf16, #s>>
"""
BUFFERS = """
    %x = tt.get_program_id x : i32
    %r = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32, #l>
    %first = arith.muli %x, %c6 : i32
    %first_s = tt.splat %first : i32 -> tensor<8xi32, #l>
    %o = arith.addi %first_s, %r : tensor<8xi32, #l>
    %c5 = arith.constant dense<5> : tensor<8xi32, #l>
    %few = arith.cmpi sle, %r, %c5 : tensor<8xi32, #l>
    %a = amdgpu.buffer_load %p[%o] stride = %c8 : tensor<8xf16, #l>
    %b = amdg.buffer_load %p[%o], %few, %a cacheModifier = cg stride = %c8 {contiguity = 2 : i32} : \
!tt.ptr<f16> -> tensor<8xf16, #l>
    amdg.buffer_store %a, %p[%o], %few : tensor<8xf16, #l>
    amdg.buffer_store %a, %p[%o] stride = %c8 : !tt.ptr<f16> -> tensor<8xf16, #l>
    %old = amdg.buffer_atomic_rmw fadd, acq_rel, gpu, %a, %p[%o], %few : tensor<8xf16, #l>
"""
ON_DEVICE = Kernel(CONSTANTS + STRIDES + MADE + CORNER + LOADS, "%p: !tt.ptr<f16>", grid=(3, 2, 1))
DESCRIPTORS = {
    "made on the device": ON_DEVICE,
    "created in memory": replace(ON_DEVICE, body=CONSTANTS + STRIDES + CREATED + CORNER + LOADS),
    "passed as arguments": replace(
        ON_DEVICE,
        body=CONSTANTS + CORNER + LOADS,
        parameters="%n: i32, %d: !tt.tensordesc<tensor<4x8xf16, #s>>, %h: i32, %w: i32, %s: i64, %t: i64, %last: f32",
        arguments=(5, 4096, 6, 8, 10, 1, None),
    ),
    "passed as later compilers print them": replace(
        ON_DEVICE,
        body=CONSTANTS + CORNER + LOADS.replace("tensordesc<tensor<4x8xf16, #s>>", "tensordesc<4x8xf16, #s>"),
        parameters="%d: !tt.tensordesc<4x8xf16, #s>, %h: i32, %w: i32, %s: i64, %t: i64",
        arguments=(4096, 6, 8, 10, 1),
    ),
}


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_blocks_of_descriptors_end_with_the_tensor(name: str) -> None:
    ran = run(DESCRIPTORS[name])
    assert_right(ran)
    assert_bytes_right(ran, sms=(0, 1, 0, 1, 0, 1))
    accesses = [access for access, _ in ran.accesses()]
    assert len(accesses) == 6
    assert all(access.touched() is not None for access in accesses)
    # By hand: of rows of 8, the first block has 6, the second 2 behind it; of the 6 rows, 4, 2, and 0.
    assert (accesses[0].places, accesses[0].requested_bytes(None)) == (6 * (6 + 2), 2 * 6 * (6 + 2))


def test_buffers_are_accessed_at_a_pointer_and_offsets() -> None:
    ran = run(Kernel(CONSTANTS + BUFFERS, "%p: !tt.ptr<f16>", grid=(3, 1, 1)))
    assert_right(ran)
    assert_bytes_right(ran, sms=(0, 1, 0))
    accesses = [access for access, _ in ran.accesses()]
    assert [access.places for access in accesses] == [3 * 8, 3 * 6, 3 * 6, 3 * 8, 3 * 6]
    # By hand: three CTAs, each 6 elements further on.
    assert [ranges.size_bytes for access in accesses if (ranges := access.touched())] == [40, 36, 36, 40, 36]


def test_of_a_buffer_in_the_generic_form_nothing_is_known() -> None:
    load = '    %a = "amdg.buffer_load"(%p, %o, %few) : (!tt.ptr<f16>, tensor<8xi32>, tensor<8xi1>) -> tensor<8xf16>\n'
    ((access, _),) = run(Kernel(CONSTANTS + BUFFERS.partition("    %a")[0] + load, "%p: !tt.ptr<f16>")).accesses()
    assert (access.address, access.mask) == (None, None)


@pytest.mark.parametrize("known", [(), (None, 6, 8, 10, 1), (4096, 6, None, 10, 1), (4096, 6, 8, None, 1)])
def test_of_a_descriptor_that_is_unknown_no_byte_is_known(known: tuple[int | None, ...]) -> None:
    ran = run(replace(DESCRIPTORS["passed as later compilers print them"], known_arguments=known))
    assert_right(ran)
    assert_bytes_right(ran)
    assert [access.touched() for access, _ in ran.accesses()] == [None] * 6


def test_of_a_block_that_is_too_large_a_part_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 20)
    for kernel in DESCRIPTORS.values():
        ran = run(kernel)
        assert_right(ran)
        assert_bytes_right(ran)


POINTERS = """
    %x = tt.get_program_id x : i32
    %c2 = arith.constant 2 : i32
    %true = arith.constant true
    %few = arith.cmpi slt, %x, %c2 : i32
    %r = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32, #l>
    %m = tt.splat %few : i1 -> tensor<4xi1, #l>
    %v = arith.constant dense<7> : tensor<4xi16, #l>
    %b = tt.splat %p : !tt.ptr<i16> -> tensor<4x!tt.ptr<i16>, #l>
    %a = tt.addptr %b, %r : tensor<4x!tt.ptr<i16>, #l>, tensor<4xi32, #l>
    %one = tt.addptr %p, %x : !tt.ptr<i16>, i32
"""


@pytest.mark.parametrize("name", FORMS)
def test_each_way_to_memory(name: str) -> None:
    """Each of four CTAs has four places; the mask is true in two CTAs."""
    line, facts = FORMS[name]
    ran = run(Kernel(POINTERS + "    " + line, "%p: !tt.ptr<i16>"))
    assert_right(ran)
    assert_bytes_right(ran, sms=(0, 0, 1, 1))
    ((access, touched),) = ran.accesses()
    form = {"reads": access.form.reads, "writes": access.form.writes, "passes by L1": access.form.passes_by_l1}
    assert [", ".join(word for word, holds in form.items() if holds), f"places {access.places}"] == facts
    assert access.places == len(touched)
    assert access.requested_bytes(None) == 2 * len(touched)


def accesses_of(kernel: Kernel) -> list[Access]:
    return [access for access, _ in run(kernel).accesses()]


UNKNOWN_MASK = """
    %f = tt.load %a : tensor<4x!tt.ptr<i32>, #l>
    %k = arith.cmpi sgt, %f, %r : tensor<4xi32, #l>
    %both = arith.andi %k, %m : tensor<4xi1, #l>
    %l = tt.load %a, %both : tensor<4x!tt.ptr<i32>, #l>
"""


def test_behind_an_unknown_mask_nothing_is_known() -> None:
    kernel = Kernel(POINTERS.replace("i16", "i32") + UNKNOWN_MASK)
    ran = run(kernel)
    assert_right(ran)
    assert_bytes_right(ran)
    _, access = accesses_of(kernel)
    assert (access.places, access.mask, access.touched(), access.requested_bytes(9)) == (None, None, None, None)


UNKNOWN_TIMES = """
    %f = tt.load %one : !tt.ptr<i32>
    %k = arith.cmpi sgt, %f, %c2 : i32
    scf.if %k {
      %l = tt.load %a : tensor<4x!tt.ptr<i32>, #l>
      %n = tt.load %a, %m : tensor<4x!tt.ptr<i32>, #l>
    }
"""


def test_only_what_is_whole_is_multiplied() -> None:
    """By how often it was executed, where only records tell that."""
    _, whole, masked = accesses_of(Kernel(POINTERS.replace("i16", "i32") + UNKNOWN_TIMES))
    assert (whole.places, whole.requested_bytes(None), whole.requested_bytes(3)) == (None, None, 3 * 4 * 4)
    assert (masked.places, masked.requested_bytes(3)) == (None, None)


def test_each_sm_has_its_own_bytes() -> None:
    """Four CTAs read the same 8 bytes: once in all, and once on each SM that one of them runs on."""
    line = "    %l = tt.load %a : tensor<4x!tt.ptr<i16>, #l>\n"
    (access,) = accesses_of(Kernel(POINTERS + line, "%p: !tt.ptr<i16>"))
    for sms in ((0, 0, 0, 0), (5, 5, 2, 2), (131, 0, 7, 3)):
        ranges = access.touched(AxisArray((CTA,), np.array(sms)))
        assert ranges is not None and ranges.size_bytes == 8 * len(set(sms))


COPY = "ttg.async_copy_global_to_local %a, %to mask %{} : tensor<4x!tt.ptr<i32>, #l> -> <4xi32, #s, #smem, mutable>"
COPIED_AHEAD = f"""
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %end = tt.load %one : !tt.ptr<i32>
    %is_first = arith.cmpi sgt, %end, %c0 : i32
    %first = tt.splat %is_first : i1 -> tensor<4xi1, #l>
    %l0 = {COPY.format("first")}
    %is_second = arith.cmpi sgt, %end, %c1 : i32
    %second = tt.splat %is_second : i1 -> tensor<4xi1, #l>
    %l1 = {COPY.format("second")}
    scf.for %i = %c0 to %end step %c1  : i32 {{
      %last = arith.subi %end, %c2 : i32
      %is_more = arith.cmpi slt, %i, %last : i32
      %more = tt.splat %is_more : i1 -> tensor<4xi1, #l>
      %l2 = {COPY.format("more")}
      %both = arith.andi %more, %m : tensor<4xi1, #l>
      %l3 = {COPY.format("both")}
    }}
"""


def test_what_a_loop_copies_ahead_is_copied_for_each_iteration() -> None:
    """However many there are: the bound was loaded."""
    ran = run(Kernel(POINTERS.replace("i16", "i32") + COPIED_AHEAD))
    _, *copies = ran.accesses()
    (*before, copy, masked), touched = zip(*copies, strict=True)
    iterations = len(ran.happened[copy.operation])
    copied = sum(map(len, touched[:3]))
    # By hand: 2, 3, 0 and 1 in the four CTAs; the first two of each are copied before the loop.
    assert (iterations, copied, len(touched[2])) == (6, 6 * 4, 4)
    assert (copy.places, copy.requested_bytes(None), copy.requested_bytes(iterations)) == (None, None, 4 * copied)
    assert [one.requested_bytes(4) for one in (*before, masked)] == [None] * 3


@pytest.mark.parametrize("line", BUFFERS.strip().splitlines()[-5:])
def test_in_a_function_that_is_called_no_address_is_known(line: str) -> None:
    """Nobody knows what it is called with."""
    helper = f"  tt.func private @helper(%p: !tt.ptr<f16>, %c8: i32) {{\n{BUFFERS}    tt.return\n  }}\n"
    kernel = "  tt.func public @k(%p: !tt.ptr<f16>) {\n    tt.call @helper(%p) : () -> ()\n    tt.return\n  }\n"
    text = f"module {{\n{kernel}{helper}}}\n"
    name = re.search(r"amdg\w*\.\w+", line)
    assert name is not None
    found = [
        one.access
        for one in evaluated(text, "k", (4, 1, 1), (), ScopeTable()).operations
        if one.operation.name == name[0]
    ]
    assert found
    for access in found:
        assert access is not None and (access.address, access.places, access.requested_bytes(None)) == (
            None,
            None,
            None,
        )
