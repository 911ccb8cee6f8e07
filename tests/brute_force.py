"""Kernels executed by plain loops: one CTA after the other, each iteration, each element. What is evaluated for all of
them at once has to be what comes out here."""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.accesses import Access, Executed, access_of
from kprof_inject.analysis.interpreter.axis_arrays import (
    CTA,
    AxisArray,
    Descriptor,
    GridAxis,
    IntegerExpr,
    Mask,
    dimension,
    loop_axis,
)
from kprof_inject.analysis.interpreter.footprints import Ranges
from kprof_inject.analysis.interpreter.interpreter import executed
from kprof_inject.analysis.interpreter.loaded_integers import Memory
from kprof_inject.ttgir.nodes import Module, Operation, Region
from kprof_inject.ttgir.parser import parse

Array = NDArray[Any]
Grid = tuple[int, int, int]

_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_ARGUMENT = re.compile(r"(%[\w$.-]+): ")
_PAIR = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)")
_SHAPE = re.compile(r"(?:tensor<|tensordesc<)((?:\d+x)+)")
_ELEMENT = re.compile(r"(?:ptr<|: <|x|tensor<)([a-z]+)(\d+)\b")
_ENDS = {"scf.yield", "scf.condition", "cf.br", "cf.cond_br", "ttg.warp_yield", "ttg.warp_return", "tt.return"}
# Behind two operands, the result, and whether that is added to.
_PREDICATE = re.compile(r" %\w+, %\w+, %\w+(?:\[[^\]]*\])?, %\w+, (%\w+)")
_WAY = re.compile(r"(\^\w+)(?:\(([^:)]*))?")
_MOST = 1 << 44


class Overflow(Exception):
    """A number is larger than kernels have them."""


class Block(NamedTuple):
    """What a descriptor tells of a tensor."""

    address: int
    shape: Sequence[int]
    strides_bytes: Sequence[int]


class Execution(NamedTuple):
    """Of one operation by one CTA; ``places`` are the numbers of the CTA and of the iterations."""

    places: dict[GridAxis, int]
    operands: list[Any]


Happened = Mapping[Operation, Sequence[Execution]]


@dataclass(frozen=True)
class Kernel:
    """Made of the lines of its body; ``parameters`` have their types, as in ``%p: !tt.ptr<i32>``.

    ``known_arguments`` are the arguments as a capture has them, if not all are known.
    """

    body: str
    parameters: str = "%p: !tt.ptr<i32>"
    grid: Grid = (4, 1, 1)
    arguments: tuple[int | None, ...] = (4096,)
    known_arguments: tuple[int | None, ...] | None = None

    @property
    def text(self) -> str:
        return f"module {{\n  tt.func public @k({self.parameters}) {{\n{self.body}\n    tt.return\n  }}\n}}\n"


@dataclass(frozen=True)
class Ran:
    """A kernel as it was evaluated, and as it happened."""

    found: list[Executed]
    happened: Happened
    module: Module

    def accesses(self) -> list[tuple[Access, list[tuple[int, int]]]]:
        """Each with the CTAs and addresses of all elements that it touched."""
        return [(access, [*chain.from_iterable(each)]) for access, each in self.executions()]

    def executions(self) -> list[tuple[Access, list[list[tuple[int, int]]]]]:
        """The same of each execution by itself."""
        evaluated = [(one, access_of(one)) for one in self.found]
        return [(access, _touched(self.happened[one.operation], access)) for one, access in evaluated if access]


class Table:
    """Memory as ``loaded`` has it: its integers of 32 bits are known."""

    def read(self, addresses: Array, size_bytes: int) -> Array | None:
        return loaded(addresses) if size_bytes == 4 else None


def run(kernel: Kernel, memory: Memory | None = None) -> Ran:
    module = parse(kernel.text)
    function = module.operations[0].regions[0].blocks[0].operations[0]
    happened = happened_in(module, function, kernel.grid, kernel.arguments)
    known = kernel.arguments if kernel.known_arguments is None else kernel.known_arguments
    return Ran(executed(module, function, kernel.grid, known, memory), happened, module)


def happened_in(module: Module, function: Operation, grid: Grid, arguments: Sequence[int | None]) -> Happened:
    happened: dict[Operation, list[Execution]] = defaultdict(list)
    for number in range(prod(grid)):
        cta = _Cta(module, grid, number, happened)
        cta.values |= zip(_ARGUMENT.findall(function.tail), arguments, strict=True)
        cta.describe(function)
        cta.region(function.regions[0])
    return happened


def loaded(address: Array) -> Array:
    """What stands in memory."""
    return np.asarray(address) // 4 * 7 % 11 % 5


class _Cta:
    def __init__(self, module: Module, grid: Grid, number: int, happened: dict[Operation, list[Execution]]) -> None:
        self.values: dict[str, Any] = {}
        self._module = module
        self._grid = grid
        self._program = (number % grid[0], number // grid[0] % grid[1], number // grid[0] // grid[1])
        self._happened = happened
        self._places = {CTA: number}

    def describe(self, function: Operation) -> None:
        """The arguments behind a descriptor are its shape and strides."""
        names = _ARGUMENT.findall(function.tail)
        for place, kind in enumerate(re.findall(r"%[\w$.-]+: (\S+)", function.tail)):
            if "tensordesc" in kind:
                rank = len(_shape(kind))
                behind = [self.values[name] for name in names[place + 1 : place + 1 + 2 * rank]]
                strides = [stride * _element_bytes(kind) for stride in behind[rank:]]
                self.values[names[place]] = Block(self.values[names[place]], behind[:rank], strides)

    def region(self, region: Region) -> list[Any]:
        """What its end passes on."""
        blocks = {block.label: block for block in region.blocks}
        label: str | None = region.blocks[0].label
        passed: list[Any] = []
        while label is not None:
            for operation in blocks[label].operations:
                passed = self._take(operation)
            label = self._next(region, blocks[label].operations[-1:])
        return passed

    def _next(self, region: Region, last: Sequence[Operation]) -> str | None:
        """The block that comes next."""
        ways = [way for one in last if one.name.startswith("cf.") for way in _WAY.findall(one.tail)]
        if not ways:
            return None
        holds = len(ways) == 1 or self.values[_NAME.findall(last[0].tail)[0]]
        label, passed = ways[0 if holds else 1]
        head = re.search(rf"\n\s*\{label}\(([^)]*)\):", self._module.text[: region.end])
        names = _ARGUMENT.findall(head[1]) if head else []
        self.values.update(zip(names, [self.values[name] for name in _NAME.findall(passed)], strict=True))
        return str(label)

    def _take(self, operation: Operation) -> list[Any]:
        nest = {"scf.for": self._for, "scf.if": self._if, "scf.while": self._while}
        nest |= {"ttg.warp_specialize": self._partitions}
        if operation.name in nest:
            self._name(operation, nest[operation.name](operation))
            return []
        operands = [self.values.get(name) for name in _NAME.findall(operation.tail)]
        if operation.name in _ENDS:
            return operands
        predicate = _PREDICATE.match(operation.tail) if "tc_gen5_mma" in operation.name else None
        if predicate is None or self.values[predicate[1]]:
            self._happened[operation].append(Execution(dict(self._places), operands))
        result = self._result(operation, operands)
        self._name(operation, result if operation.name == "tt.split" else [result])
        return []

    def _name(self, operation: Operation, results: Sequence[Any]) -> None:
        name, _, count = operation.results.partition("=")[0].strip().partition(":")
        names = [f"{name}#{number}" for number in range(int(count))] if count else name.split(", ")
        self.values.update(zip(names, results, strict=False))

    def _for(self, operation: Operation) -> list[Any]:
        counter, *ends = _NAME.findall(operation.tail)[:4]
        first, last, step = (self.values[name] for name in ends)
        pairs = _PAIR.findall(operation.tail.partition("iter_args(")[2].partition(")")[0])
        carried = [self.values.get(value) for _, value in pairs]
        axis = loop_axis(operation.start)
        for number, counted in enumerate(range(first, last, step)):
            self._places[axis] = number
            self.values |= {counter: counted, **dict(zip([name for name, _ in pairs], carried, strict=True))}
            carried = self.region(operation.regions[-1])[: len(pairs)]
        self._places.pop(axis, None)
        return carried

    def _if(self, operation: Operation) -> list[Any]:
        holds = self.values[_NAME.findall(operation.tail)[0]]
        chosen = operation.regions[0 if holds else 1 :][:1]
        return [value for region in chosen for value in self.region(region)]

    def _while(self, operation: Operation) -> list[Any]:
        pairs = _PAIR.findall(operation.tail)
        before, after = operation.regions
        carried = [self.values[value] for _, value in pairs]
        names = _ARGUMENT.findall(self._module.text[before.end : after.blocks[0].start])
        for number in count():
            self.values.update(zip([name for name, _ in pairs], carried, strict=True))
            self._places[loop_axis(before.end)] = number
            holds, *carried = self.region(before)
            self._places.pop(loop_axis(before.end))
            if not holds:
                break
            self.values.update(zip(names, carried, strict=True))
            self._places[loop_axis(operation.start)] = number
            carried = self.region(after)
        self._places.pop(loop_axis(operation.start), None)
        return carried

    def _partitions(self, operation: Operation) -> list[Any]:
        captured = [self.values[name] for name in _NAME.findall(operation.tail)]
        for region in operation.regions:
            head = self._module.text.rindex(region.clause, 0, region.blocks[0].start)
            names = _ARGUMENT.findall(self._module.text[head : region.blocks[0].start])
            self.values.update(zip(names, captured, strict=False))
            self.region(region)
        return []

    def _result(self, operation: Operation, operands: list[Any]) -> Any:
        text = operation.tail
        if operation.name in ("tt.get_program_id", "tt.get_num_programs"):
            which = "xyz".index(text.split()[0])
            return (self._program if operation.name == "tt.get_program_id" else self._grid)[which]
        if operation.name == "ttng.tensormap_create":
            self.values[f"memory at {_NAME.findall(text)[0]}"] = _created(text, operands)
            return None
        if operation.name == "ttng.reinterpret_tensor_descriptor":
            return self.values[f"memory at {_NAME.findall(text)[0]}"]
        if operation.name in _RESULTS and all(operand is not None for operand in operands):
            found = _RESULTS[operation.name](text, *operands)
            if isinstance(found, Block) or found is None:
                return found
            if np.abs(np.asarray(found, np.int64)).max(initial=0) > _MOST:
                raise Overflow
            return found
        return None


def _shape(text: str) -> tuple[int, ...]:
    """Of the last tensor that is printed; nothing of a scalar."""
    found = _SHAPE.findall(text.partition(" loc(")[0])
    return tuple(int(size) for size in found[-1].split("x") if size) if found else ()


def _element_bytes(text: str) -> int:
    """Of the first type that is printed."""
    found = _ELEMENT.search(text)
    assert found, text
    return max(int(found[2]) // 8, 1)


def _types(text: str) -> str:
    return text.rpartition(" : ")[2]


def _constant(text: str) -> Any:
    text = re.sub(r"^ *\{[^}]*\} ", "", text)  # attributes
    value, _, kind = text.strip().removeprefix("dense<").replace(">", "", text.count("dense<")).partition(" : ")
    if value in ("true", "false"):
        return np.full(_shape(kind), value == "true") if kind else value == "true"
    number = np.float32(value) if "." in value else int(value)
    return np.full(_shape(kind), number) if _shape(kind) else number


def _range(text: str) -> Array:
    ends = dict(re.findall(r"(start|end) = (\d+)", text))
    return np.arange(int(ends["start"]), int(ends["end"]))


def _number(text: str, name: str) -> int:
    return int(text.partition(f"{name} = ")[2].split()[0])


def _quotient(_: str, one: Any, other: Any) -> Any:
    return np.trunc(np.divide(one, other)).astype(np.int64)


def _two(compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda _, one, other: compute(one, other)


_COMPARE = {"eq": np.equal, "ne": np.not_equal}
_COMPARE |= {"slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal}


def _load(text: str, address: Any, mask: Any = True, other: Any = 0) -> Any:
    return np.where(mask, loaded(address), other) if "ptr<i32>" in text else None


def _described(text: str, address: int, *operands: int) -> Block:
    rank = len(operands) // 2
    strides = [stride * _element_bytes(_types(text)) for stride in operands[rank:]]
    return Block(address, operands[:rank], strides)


def _created(text: str, operands: list[Any]) -> Block:
    """``%to, %base, [box], [shape], [strides in bytes, but for the innermost], [element strides]``: all of them from
    the innermost dimension on."""
    rank = (len(operands) - 1) // 4
    _, address, *rest = operands
    shape, strides = rest[rank : 2 * rank], rest[2 * rank : 3 * rank - 1]
    return Block(address, shape[::-1], [*strides[::-1], _element_bytes(text.partition("ptr<i8>, ")[2])])


_TWO: dict[str, Callable[[Any, Any], Any]] = {
    **{"addi": operator.add, "subi": operator.sub, "muli": operator.mul, "minsi": np.minimum, "maxsi": np.maximum},
    **{
        "andi": operator.and_,
        "ori": operator.or_,
        "xori": operator.xor,
        "shli": np.left_shift,
        "shrsi": np.right_shift,
    },
    **{"addf": operator.add, "subf": operator.sub, "mulf": operator.mul, "divf": operator.truediv},
    "ceildivsi": lambda one, other: -(-one // other),
}
_RESULTS: dict[str, Callable[..., Any]] = {
    **{f"arith.{name}": _two(compute) for name, compute in _TWO.items()},
    "arith.constant": _constant,
    "tt.make_range": _range,
    "tt.splat": lambda text, value: np.full(_shape(text), value),
    "tt.broadcast": lambda text, value: np.broadcast_to(value, _shape(text)),
    "tt.expand_dims": lambda text, value: np.expand_dims(value, _number(text, "axis")),
    "tt.trans": lambda text, value: np.transpose(value, [*map(int, re.findall(r"\d+", text.split(">")[0])[1:])]),
    "tt.reshape": lambda text, value: np.reshape(value, _shape(text)),
    "tt.join": lambda _, one, other: np.stack((one, other), axis=-1),
    "tt.split": lambda _, value: (value[..., 0], value[..., 1]),
    "ttg.convert_layout": lambda _, value: value,
    "arith.extsi": lambda _, value: value,
    "arith.extui": lambda _, value: np.asarray(value, np.int64),
    "arith.divsi": _quotient,
    "arith.remsi": lambda text, one, other: np.asarray(one) - _quotient(text, one, other) * other,
    "math.absi": lambda _, value: np.abs(value),
    "arith.sitofp": lambda _, value: np.asarray(value).astype(np.float32),
    "arith.fptosi": lambda _, value: np.trunc(value).astype(np.int64),
    "math.sqrt": lambda _, value: np.sqrt(value),
    "math.floor": lambda _, value: np.floor(value),
    "arith.cmpf": lambda text, one, other: _COMPARE[f"s{text.split(',')[0].strip()[1:]}"](one, other),
    "arith.cmpi": lambda text, one, other: _COMPARE[text.split(",")[0].strip()](one, other),
    "arith.select": lambda _, condition, one, other: np.where(condition, one, other),
    "tt.addptr": lambda text, pointer, offset: pointer + offset * _element_bytes(_types(text)),
    "tt.load": _load,
    "tt.make_tensor_descriptor": _described,
}


_MASK_PLACES = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2, "ttg.async_copy_global_to_local": 2}


def _touched(executions: Sequence[Execution], access: Access) -> list[list[tuple[int, int]]]:
    """The CTA and the address of each element, by execution."""
    text = access.operation.tail
    found = []
    for places, operands in executions:
        reach = _of_block if isinstance(operands[0], Block) else _of_pointers
        reach = _of_buffer if ".buffer_" in access.operation.name else reach
        found.append([(places[CTA], int(address)) for address in reach(access.operation.name, text, operands)])
    return found


def _of_pointers(name: str, text: str, operands: list[Any]) -> Array:
    shapes = _SHAPE.findall(_types(text))
    shape = [int(size) for size in shapes[0].split("x") if size] if shapes else []
    place = _MASK_PLACES.get(name, len(operands))
    is_masked = place < len(operands) and ("async" not in name or " mask " in text)
    mask = operands[place] if is_masked else True
    return np.asarray(np.broadcast_to(operands[0], shape)[np.broadcast_to(mask, shape)])


def _of_buffer(name: str, text: str, operands: list[Any]) -> Array:
    pointer, offsets, *mask = operands[0 if "load" in name else 1 :]
    offsets = np.broadcast_to(offsets, _shape(text))
    addresses = pointer + offsets * _element_bytes(text.rpartition("tensor<")[2])
    is_masked = re.search(r"\], %", text)
    return np.asarray(addresses[np.broadcast_to(mask[0] if is_masked else True, _shape(text))])


def _of_block(name: str, text: str, operands: list[Any]) -> list[int]:
    block, *rest = operands
    if name == "ttng.async_tma_copy_global_to_local" and not rest[-1]:
        return []
    shape = [int(size) for size in _SHAPE.findall(_types(text))[0].split("x") if size]
    found = []
    for offsets in np.ndindex(*shape):
        places = [int(first) + offset for first, offset in zip(rest, offsets, strict=False)]
        if all(0 <= place < size for place, size in zip(places, block.shape, strict=True)):
            found.append(block.address + sum(np.multiply(places, block.strides_bytes)))
    return found


def bytes_of(touched: Sequence[tuple[int, int]], size: int, sms: Mapping[int, int] | None = None) -> set[int]:
    """All bytes of elements of this size. With ``sms``, each SM has its own."""
    at = sms or defaultdict(int)
    return {(at[cta] << 50) + address + byte for cta, address in touched for byte in range(size)}


def bytes_in(ranges: Ranges) -> set[int]:
    ends = zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)
    found = [byte for start, end in ends for byte in range(start, end)]
    assert len(set(found)) == len(found) == ranges.size_bytes
    return set(found)


def assert_right(ran: Ran) -> None:
    """What is known of each operation is what happened; nothing need be known."""
    for one in ran.found:
        happened = ran.happened[one.operation]
        assert one.times in (None, len(happened)), one.operation
        for places, operands in happened:
            if one.when is not None and not one.when.is_lower_bound:
                assert _at(one.when, places, 0), one.operation
            for value, actual in zip(one.operands, operands, strict=True):
                _assert_same(value, actual, places, one.operation)


def assert_bytes_right(ran: Ran, sms: Sequence[int] = ()) -> None:
    """The bytes that are known to be touched are those that were, or some of them where that is all that is said."""
    sm_of_cta = AxisArray((CTA,), np.array(sms)) if sms else None
    for access, touched in ran.accesses():
        is_lower_bound = access.mask is not None and access.mask.is_lower_bound
        if access.places is not None:
            assert access.places <= len(touched) if is_lower_bound else access.places == len(touched), access.operation
        for by_sm in (None, sm_of_cta):
            ranges = access.touched(by_sm)
            actual = bytes_of(touched, access.element_bytes, dict(enumerate(sms)) if by_sm else None)
            if ranges is not None:
                evaluated = bytes_in(ranges)
                assert evaluated <= actual if is_lower_bound else evaluated == actual, access.operation


def _assert_same(value: Any, actual: Any, places: Mapping[GridAxis, int], operation: Operation) -> None:
    if value is None or actual is None:
        return
    if isinstance(value, Descriptor):
        fields = (actual.address, *actual.shape, *actual.strides_bytes)
        for one, another in zip((value.address, *value.shape, *value.strides_bytes), fields, strict=True):
            _assert_same(one, another, places, operation)
        return
    found = _at(value, places, np.ndim(actual))
    found, actual = np.broadcast_arrays(found, actual)
    if isinstance(value, Mask) and value.is_lower_bound:
        assert not np.any(found & ~np.asarray(actual)), operation
    else:
        assert np.array_equal(found, actual), operation


def _at(value: IntegerExpr | Mask, places: Mapping[GridAxis, int], rank: int) -> Array:
    """The value of one CTA in one iteration of each loop: an array of this rank."""
    if isinstance(value, IntegerExpr):
        found: Array = sum((_part_at(part, places, rank) for part in value.parts), np.zeros([1] * rank, np.int64))
        return found
    factors = [_part_at(part, places, rank) for part in value.parts]
    return np.asarray(np.logical_and.reduce(np.broadcast_arrays(np.full([1] * rank, True), *factors)))


def _part_at(part: AxisArray, places: Mapping[GridAxis, int], rank: int) -> Array:
    tensors = [dimension(number) for number in range(rank)]
    index = tuple(slice(None) if axis in tensors else places[axis] for axis in part.axes)
    sizes = dict(zip(part.axes, part.values.shape, strict=True))
    return part.values[index].reshape([sizes.get(axis, 1) for axis in tensors])
