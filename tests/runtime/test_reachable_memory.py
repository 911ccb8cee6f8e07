"""Arguments of a launch, and which memory they reach: storages of tensors, allocations around addresses."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from kprof_inject.capture.saved_launch import (
    DescriptorArgument,
    FloatArgument,
    IntegerArgument,
    OmittedArgument,
    PointerArgument,
    SavedArgument,
    TensorMapArgument,
)
from kprof_inject.capture.schema import MAX_ARGUMENT
from kprof_inject.runtime.compiling.recording_build import ArgumentKinds
from kprof_inject.runtime.devices.cuda_driver import MemoryRange
from kprof_inject.runtime.launch.saved_memory import (
    NotSaved,
    ReachedRange,
    found_in,
    merged,
    reached_by,
    saved_arguments,
)

pytestmark = pytest.mark.triton

BASE = 0x7F00_0000_0000
PAGE = 2 << 20


class Allocations:
    """The device's memory, and the addresses that were looked up in it."""

    def __init__(self, *ranges: MemoryRange) -> None:
        self.ranges = ranges
        self.asked: list[int] = []

    def __call__(self, address: int) -> MemoryRange | None:
        self.asked.append(address)
        return next((one for one in self.ranges if one.address <= address < one.end), None)


NOTHING = Allocations()


def kinds_of(*kinds: str) -> ArgumentKinds:
    return ArgumentKinds.of({f"argument{place}": kind for place, kind in enumerate(kinds)})


def reached(*pairs: tuple[str, Any], at: Callable[[int], MemoryRange | None] = NOTHING) -> list[ReachedRange]:
    return reached_by([argument for _, argument in pairs], kinds_of(*(kind for kind, _ in pairs)), at)


def around(tensor: torch.Tensor, element: str) -> ReachedRange:
    """What is saved of a whole tensor: to multiples of 16 bytes."""
    start = tensor.data_ptr() // 16 * 16
    end = -(-(tensor.data_ptr() + tensor.nbytes) // 16) * 16
    return ReachedRange(MemoryRange(start, end - start), element)


def test_of_a_view_the_whole_storage_is_reached() -> None:
    """A kernel may write outside of a view."""
    x = torch.ones(10, 20)
    for view in (x, x[3:5], x[3, 4:6], x[:0], x.t(), x.as_strided((2, 2), (1, 1), 50), x.detach()[9:]):
        assert reached(("*fp32", view)) == reached(("*kfp32", view)) == [around(x, "fp32")]
    assert reached(("*fp32", torch.empty(0))) == []


def test_arguments_that_share_memory_are_reached_once() -> None:
    x = torch.ones(64)
    assert reached(("*fp32", x[:8]), ("*fp32", x[32:]), ("*fp32", x)) == [around(x, "fp32")]


def test_memory_of_several_types_has_no_type() -> None:
    """It is then searched for addresses."""
    x = torch.ones(64)
    (found,) = reached(("*fp32", x), ("*i32", x.view(torch.int32)))
    assert found == around(x, "")
    (pointers,) = reached(("**fp32", x))
    assert found.may_hold_addresses and pointers.may_hold_addresses


def test_constants_and_numbers_reach_nothing() -> None:
    at = Allocations(MemoryRange(BASE, 4096))
    others = [("constexpr", torch.ones(4)), ("constexpr", BASE), ("i32", BASE), ("fp64", float(BASE)), ("i1", True)]
    assert reached(*others, ("*fp32", None), at=at) == []
    assert at.asked == []


def test_tuples_reach_what_is_in_them_in_the_order_of_addresses() -> None:
    x, table = torch.ones(4), torch.zeros(4, dtype=torch.int64)
    found = reached(("('*fp32', 'i32', ('*i64', 'constexpr'))", (x, 3, (table, torch.ones(9)))))
    expected = sorted([around(x, "fp32"), around(table, "i64")], key=lambda one: one.memory.address)
    assert found == expected


def test_a_descriptor_reaches_the_storage_of_its_tensor() -> None:
    x = torch.ones(8, 16, dtype=torch.float16)
    descriptor = TensorDescriptor.from_tensor(x[2:], [2, 16])
    assert reached(("tensordesc<fp16[2, 16]>", descriptor)) == [around(x, "fp16")]


def test_wrapped_tensors_reach_what_they_wrap() -> None:
    x = torch.ones(8)
    wrapped = triton.reinterpret(x[4:], tl.int32)
    assert reached(("*i32", wrapped)) == [around(x, "i32")]
    twice = SimpleNamespace(base=SimpleNamespace(base=wrapped, data_ptr=x.data_ptr), data_ptr=x.data_ptr)
    assert reached(("*i32", twice)) == [around(x, "i32")]


def test_a_bare_address_reaches_its_allocation() -> None:
    at = Allocations(MemoryRange(BASE, 4096))
    for argument in (BASE, BASE + 4095, SimpleNamespace(data_ptr=lambda: BASE + 8)):
        assert reached(("*i64", argument), at=at) == [ReachedRange(MemoryRange(BASE, 4096), "i64")]
    assert reached(("*i64", 0), at=at) == []


@pytest.mark.parametrize("address", [BASE - 1, BASE + 4096, 1, -1, 1 << 62])
def test_an_address_without_memory_is_a_reason_not_to_save(address: int) -> None:
    at = Allocations(MemoryRange(BASE, 4096))
    with pytest.raises(NotSaved, match="where the device has no memory"):
        reached(("*fp32", address), at=at)


@pytest.mark.parametrize(
    ("kind", "argument", "reason"),
    [
        ("*fp32", "x", "a pointer of type str"),
        ("*fp32", 1.5, "a pointer of type float"),
        ("nvTmaDesc", 5, "a tensor map of type int"),
        ("tensordesc<fp32[4]>", 5, "a tensor descriptor of type int"),
    ],
)
def test_an_argument_that_is_something_else_is_a_reason_not_to_save(kind: str, argument: object, reason: str) -> None:
    with pytest.raises(NotSaved, match=reason):
        saved_arguments([argument], kinds_of(kind))


@pytest.mark.parametrize("arguments", [[], [1], [1, 2, 3, 4]])
def test_arguments_that_do_not_match_the_signature_are_a_reason_not_to_save(arguments: list[int]) -> None:
    """They would be saved as if the kernel had none."""
    with pytest.raises(NotSaved, match="do not match"):
        saved_arguments(arguments, kinds_of("i32", "constexpr", "i32"))


@pytest.mark.parametrize("kind", ["i64", "u64"])
def test_a_number_that_is_an_address_reaches_its_allocation(kind: str) -> None:
    at = Allocations(MemoryRange(BASE, 4096))
    found = reached((kind, BASE + 100), at=at)
    assert found == [ReachedRange(MemoryRange(BASE, 4096), is_found=True)]
    assert found[0].may_hold_addresses
    for number in (BASE - 1, BASE + 4096, 0, -5, (1 << 32) - 1, 1 << 57, (1 << 63) - 1):
        assert reached((kind, number), at=at) == []
    assert {BASE + 100, BASE - 1, BASE + 4096} == {*at.asked}, "other numbers are no addresses"


def tensor_map(address: int) -> tuple[Any, bytes]:
    data = struct.pack("<Q", address) + bytes(range(120))
    buffer = ctypes.create_string_buffer(data, 128)
    return SimpleNamespace(tma_desc_cpu_ptr=lambda: ctypes.addressof(buffer)), data


def test_a_tensor_map_reaches_the_allocation_of_its_address() -> None:
    at = Allocations(MemoryRange(BASE, 4096))
    argument, _ = tensor_map(BASE + 512)
    assert reached(("nvTmaDesc", argument), at=at) == [ReachedRange(MemoryRange(BASE, 4096), "")]
    missing, _ = tensor_map(BASE - 512)
    with pytest.raises(NotSaved, match="where the device has no memory"):
        reached(("nvTmaDesc", missing), at=at)


def test_words_of_64_bits_and_bytes_may_hold_addresses() -> None:
    elements = ("", "i64", "u64", "i8", "u8", "i1", "u1", "fp32", "i32", "bf16")
    found = [ReachedRange(MemoryRange(BASE, 64), element).may_hold_addresses for element in elements]
    assert found == [True] * 7 + [False] * 3


def saved(kind: str, argument: Any) -> SavedArgument:
    (found,) = saved_arguments([argument], kinds_of(kind))
    return found


def test_arguments_are_saved_with_all_that_a_launcher_reads() -> None:
    x = torch.ones(4, 6, dtype=torch.bfloat16)
    pointer = PointerArgument(address=x.data_ptr() + 12)
    assert saved("*bf16", x[1:]) == pointer
    assert saved("*bf16", x.data_ptr()) == PointerArgument(address=x.data_ptr())
    assert saved("*i8", SimpleNamespace(data_ptr=lambda: 64)) == PointerArgument(address=64)
    assert saved("i1", True) == IntegerArgument("1")
    assert saved("i32", np.int32(-7)) == IntegerArgument("-7")
    assert saved("i32", torch.tensor(5)) == IntegerArgument("5")
    assert saved("fp16", 3) == FloatArgument((3.0).hex())
    assert saved("*fp32", None) == OmittedArgument()
    assert saved("constexpr", object()) == OmittedArgument()
    assert saved_arguments([], kinds_of()) == saved_arguments([], kinds_of("constexpr")) == ()
    argument, data = tensor_map(BASE)
    assert saved("nvTmaDesc", argument) == TensorMapArgument(data.hex())


def test_descriptors_are_saved_without_what_json_cannot_hold() -> None:
    x = torch.ones(8, 16)
    found = saved("tensordesc<fp32[2, 16]>", TensorDescriptor.from_tensor(x, [2, 16]))
    assert isinstance(found, DescriptorArgument)
    assert found.base == PointerArgument(address=x.data_ptr())
    assert (found.fields["shape"], found.fields["strides"], found.fields["block_shape"]) == ((8, 16), (16, 1), (2, 16))
    assert "base" not in found.fields
    other = SimpleNamespace(base=x, shape=x.shape, layout=object(), names=["a"], padding=None, is_round=True)
    found = saved("tensordesc<fp32[2, 16]>", other)
    assert isinstance(found, DescriptorArgument)
    assert found.fields == {"shape": (8, 16), "padding": None, "is_round": True}


# Ranges that overlap

RANGES = st.builds(
    lambda start, size, element, is_found: ReachedRange(MemoryRange(BASE + start, size), element, is_found),
    st.integers(0, 600),
    st.integers(1, 100),
    st.sampled_from(["", "fp32", "i64"]),
    st.booleans(),
)


@given(st.lists(RANGES, max_size=12))
def test_merged_ranges_cover_all_and_keep_what_all_agree_on(ranges: list[ReachedRange]) -> None:
    found = merged(ranges)
    for before, after in pairwise(found):
        assert before.memory.end <= after.memory.address
    for one in found:
        assert one.memory.address % 16 == one.memory.end % 16 == 0
        inside = [part for part in ranges if one.memory.address <= part.memory.address < one.memory.end]
        elements = {part.element for part in inside}
        assert one.element == (elements.pop() if len(elements) == 1 else "")
        assert one.is_found == all(part.is_found for part in inside)
    # Each block of 16 bytes is covered if and only if a range has part of it.
    expected = {block for one in ranges for block in range(one.memory.address // 16, (one.memory.end - 1) // 16 + 1)}
    blocks = [block for one in found for block in range(one.memory.address // 16, one.memory.end // 16)]
    assert sorted(expected) == blocks


def test_ranges_next_to_each_other_stay_apart() -> None:
    first, second = (ReachedRange(MemoryRange(BASE + start, 64), "fp32") for start in (0, 64))
    assert merged([second, first]) == [first, second]


# Addresses in memory


def words(*numbers: int) -> memoryview:
    return memoryview(struct.pack(f"<{len(numbers)}Q", *numbers))


def addresses_of(found: Sequence[ReachedRange]) -> list[int]:
    assert all(one.is_found and one.element == "" for one in found)
    return [one.memory.address for one in found]


def test_addresses_in_memory_lead_to_allocations() -> None:
    one, other = MemoryRange(BASE, 4096), MemoryRange(BASE + 9 * PAGE, 4096)
    at = Allocations(one, other)
    found = found_in(words(3, other.address + 8, 0, one.address, 1 << 60, other.address), [], at)
    assert addresses_of(found) == [one.address, other.address]
    assert found_in(words(one.address)[:7], [], at) == []


def test_what_is_known_is_not_found_again() -> None:
    one, other = MemoryRange(BASE, 4096), MemoryRange(BASE + 9 * PAGE, 4096)
    at = Allocations(one, other)
    known = [ReachedRange(one, "fp32")]
    assert addresses_of(found_in(words(one.address + 64, other.address), known, at)) == [other.address]
    assert one.address + 64 not in at.asked


def test_numbers_that_are_no_addresses_are_not_looked_up() -> None:
    at = Allocations(MemoryRange(0, 1 << 63))
    assert found_in(words(0, 1, (1 << 32) - 1, 1 << 57, (1 << 64) - 1), [], at) == []
    assert at.asked == []


def test_small_allocations_that_share_a_page_are_all_found() -> None:
    """The driver packs small allocations into pages of 2 MB."""
    small = [MemoryRange(BASE + 512 * place, 256) for place in range(8)]
    at = Allocations(*small)
    found = found_in(words(*(one.address + 16 for one in reversed(small))), [], at)
    assert addresses_of(found) == [one.address for one in small]


def test_a_table_of_many_addresses_is_looked_up_once_for_each_allocation() -> None:
    one = MemoryRange(BASE, 64 * PAGE)
    at = Allocations(one)
    table = BASE + 8 * np.arange(1_000_000, dtype=np.uint64)
    assert addresses_of(found_in(memoryview(table.tobytes()), [], at)) == [BASE]
    assert len(at.asked) == 1


def test_much_that_looks_like_addresses_is_looked_up_only_so_often() -> None:
    at = Allocations()
    table = BASE + PAGE * np.arange(100_000, dtype=np.uint64)
    assert found_in(memoryview(table.tobytes()), [], at) == []
    assert 1000 < len(at.asked) < 10_000


# What a capture keeps of a launch's arguments


@dataclass(frozen=True)
class Tensor:
    """As torch has them."""

    address: int

    def data_ptr(self) -> int:
        return self.address


@dataclass(frozen=True)
class HostDescriptor:
    """As Triton has them on the host."""

    base: Tensor
    shape: Sequence[Any]
    strides: Sequence[Any]
    block_shape: Sequence[int]


class Whole:
    """As a size may be, that is none but in name."""

    def __int__(self) -> int:
        return 96


MATRIX = HostDescriptor(Tensor(4096), [128, Whole()], [64, 1], [32, 32])
X = Tensor(256)


@pytest.mark.parametrize(
    ("names", "arguments", "numbers"),
    [
        (("*fp32", "i32", "i64"), (X, 7, -9), (256, 7, -9)),
        (("*fp32", "constexpr", "i32"), (X, 128, 7), (256, 7)),
        (("constexpr", "*fp16", "constexpr"), (1, X, None), (256,)),
        (("i1", "fp32", "i32"), (True, 0.5, 3), (1, None, 3)),
        (("*fp32", "i32"), (None, "seven"), (None, None)),
        (("*i64",), (1 << 40,), (1 << 40,)),
        (("tensordesc<fp16[32, 32]>", "i32"), (MATRIX, 5), (4096, 128, 96, 64, 1, 5)),
        (("('i32', '*fp32')", "i32"), ((3, X), 4), (3, 256, 4)),
        (("('i32', ('constexpr', 'i32'), 'constexpr')", "i32"), ((3, (8, 9), 10), 4), (3, 9, 4)),
        (("()", "i32"), ((), 4), (4,)),
        ((), (), ()),
        (("constexpr",), (7,), ()),
        # Inductor leaves the constants out.
        (("constexpr", "*fp32", "i32", "constexpr"), (X, 7), (256, 7)),
        # Of another kernel's arguments nothing is kept.
        *((("*fp32", "constexpr", "constexpr", "i32"), (X,) * count, ()) for count in (0, 1, 3, 5)),
    ],
)
def test_arguments_are_numbers(names: Sequence[str], arguments: Sequence[Any], numbers: Sequence[int | None]) -> None:
    assert kinds_of(*names).numbers(arguments) == numbers


@pytest.mark.parametrize("sign", [1, -1])
def test_what_has_no_room_in_a_capture_is_left_out(sign: int) -> None:
    found = kinds_of("i64", "u64", "i32").numbers((sign * MAX_ARGUMENT, sign * (MAX_ARGUMENT + 1), 3))
    assert found == (sign * MAX_ARGUMENT, None, 3)


def test_numbers_are_plain() -> None:
    """No subclass of an integer that a program made is kept alive."""

    class Own(int):
        pass

    found = kinds_of("i32", "i1").numbers((Own(5), True))
    assert [type(number) for number in found] == [int, int]
