"""Kernels made by hypothesis: integers of four shapes, computed, loaded, masked, branched on and carried by loops.

A loop carries on what has nothing to do with what it was handed, what is a sum with that, or a counter that wraps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from brute_force import Kernel
from hypothesis import strategies as st

SHAPES = ("", "4x", "8x", "4x8x")
_BINARY = ("addi", "subi", "minsi", "maxsi", "andi", "ori", "xori")
_COMPARE = ("eq", "ne", "slt", "sle", "sgt", "sge")
_IN, _OUT = "%p", "%o"
_NAME = re.compile(r"%\w+(?:#\d)?")


def _type(shape: str, element: str) -> str:
    return f"tensor<{shape}{element}>" if shape else element


@dataclass
class _Writer:
    """Writes a body line by line. ``names`` are those that may be used, by shape and element."""

    draw: st.DrawFn
    lines: list[str] = field(default_factory=list)
    names: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    number: int = 0

    def body(self, statements: int, depth: int) -> None:
        makers: list[Callable[[int], None]] = [self.binary, self.binary, self.divided, self.compared, self.joined]
        makers += [self.selected, self.widened, self.load, self.load, self.store]
        if depth:
            makers += [self.branch, self.loop, self.loop]
        for _ in range(statements):
            self.draw(st.sampled_from(makers))(depth)

    def prelude(self) -> None:
        for number in (0, 1, 2, 3, 5, -2):
            self.give("", "i32", f"arith.constant {number} : i32")
        for axis in "xy":
            self.give("", "i32", f"tt.get_program_id {axis} : i32")
        for size in (4, 8):
            self.give(f"{size}x", "i32", f"tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32>")
        for shape in SHAPES:
            self.give(shape, "i32", f"arith.constant {'dense<3>' if shape else 3} : {_type(shape, 'i32')}")
            one, other = self.one_of(shape), self.one_of(shape)
            self.give(shape, "i1", f"arith.cmpi slt, {one}, {other} : {_type(shape, 'i32')}")

    def give(self, shape: str, element: str, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        self.names.setdefault((shape, element), []).append(name)
        return name

    def fresh(self) -> str:
        self.number += 1
        return f"%v{self.number}"

    def shape(self) -> str:
        return self.draw(st.sampled_from(SHAPES))

    def one_of(self, shape: str, element: str = "i32") -> str:
        """The last ones are taken more often."""
        names = self.names[shape, element]
        return names[-1 - min(self.draw(st.integers(0, 5)), self.draw(st.integers(0, len(names) - 1)))]

    def constant(self, shape: str, *values: int) -> str:
        value = self.draw(st.sampled_from(values))
        return self.give(
            shape, "i32", f"arith.constant {f'dense<{value}>' if shape else value} : {_type(shape, 'i32')}"
        )

    def binary(self, _: int) -> None:
        shape, name = self.shape(), self.draw(st.sampled_from(_BINARY))
        self.give(shape, "i32", f"arith.{name} {self.one_of(shape)}, {self.one_of(shape)} : {_type(shape, 'i32')}")

    def divided(self, _: int) -> None:
        shape, name = self.shape(), self.draw(st.sampled_from(("muli", "divsi", "remsi", "shrsi")))
        by = self.constant(shape, *((1, 2) if name == "shrsi" else (-3, 2, 3, 5)))
        self.give(shape, "i32", f"arith.{name} {self.one_of(shape)}, {by} : {_type(shape, 'i32')}")

    def compared(self, _: int) -> None:
        shape, how = self.shape(), self.draw(st.sampled_from(_COMPARE))
        self.give(shape, "i1", f"arith.cmpi {how}, {self.one_of(shape)}, {self.one_of(shape)} : {_type(shape, 'i32')}")

    def joined(self, _: int) -> None:
        shape, how = self.shape(), self.draw(st.sampled_from(("andi", "ori", "xori")))
        self.give(
            shape, "i1", f"arith.{how} {self.one_of(shape, 'i1')}, {self.one_of(shape, 'i1')} : {_type(shape, 'i1')}"
        )

    def selected(self, _: int) -> None:
        shape = self.shape()
        condition, kind = self.one_of(shape, "i1"), _type(shape, "i32")
        types = f"{_type(shape, 'i1')}, {kind}" if shape else kind
        self.give(shape, "i32", f"arith.select {condition}, {self.one_of(shape)}, {self.one_of(shape)} : {types}")

    def widened(self, _: int) -> None:
        """A scalar becomes a tensor, a row or a column a matrix."""
        element = self.draw(st.sampled_from(("i32", "i1")))
        shape, after = self.draw(
            st.sampled_from((("", "4x"), ("", "8x"), ("", "4x8x"), ("4x", "4x8x"), ("8x", "4x8x")))
        )
        source = self.one_of(shape, element)
        if not shape:
            self.give(after, element, f"tt.splat {source} : {element} -> {_type(after, element)}")
            return
        axis, flat = (1, "4x1x") if shape == "4x" else (0, "1x8x")
        types = f"{_type(shape, element)} -> {_type(flat, element)}"
        name = self.give(flat, element, f"tt.expand_dims {source} {{axis = {axis} : i32}} : {types}")
        self.give(after, element, f"tt.broadcast {name} : {_type(flat, element)} -> {_type(after, element)}")

    def pointers(self, base: str, shape: str) -> tuple[str, str]:
        offset, pointer = self.one_of(shape), _type(shape, "!tt.ptr<i32>")
        if shape:
            name = self.fresh()
            self.lines.append(f"{name} = tt.splat {base} : !tt.ptr<i32> -> {pointer}")
            base = name
        name = self.fresh()
        self.lines.append(f"{name} = tt.addptr {base}, {offset} : {pointer}, {_type(shape, 'i32')}")
        return name, pointer

    def mask(self, shape: str) -> str:
        return f", {self.one_of(shape, 'i1')}" if self.draw(st.booleans()) else ""

    def load(self, _: int) -> None:
        shape = self.shape()
        name, pointer = self.pointers(_IN, shape)
        cached = self.draw(st.sampled_from(("", "", " cacheModifier = cg")))
        self.give(shape, "i32", f"tt.load {name}{self.mask(shape)}{cached} : {pointer}")

    def store(self, _: int) -> None:
        shape = self.shape()
        name, pointer = self.pointers(_OUT, shape)
        self.lines.append(f"tt.store {name}, {self.one_of(shape)}{self.mask(shape)} : {pointer}")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What is named inside is not known behind it."""
        around = self.names
        self.names = {key: list(names) for key, names in around.items()}
        try:
            yield
        finally:
            self.names = around

    def pass_out(self, shape: str, name: str) -> None:
        """What an operation with regions gives."""
        self.names[shape, "i32"].append(name)

    def branch(self, depth: int) -> None:
        shape = self.shape()
        kind, name = _type(shape, "i32"), self.fresh()
        self.lines.append(f"{name} = scf.if {self.one_of('', 'i1')} -> ({kind}) {{")
        for end in ("} else {", "}"):
            with self.inside():
                self.body(self.draw(st.integers(0, 3)), depth - 1)
                self.lines += [f"scf.yield {self.one_of(shape)} : {kind}", end]
        self.pass_out(shape, name)

    def loop(self, depth: int) -> None:
        """Of few iterations, whatever its bounds hang on."""
        few = self.give("", "i32", f"arith.minsi {self.one_of('')}, {self.constant('', 2, 4)} : i32")
        first, step = self.constant("", 0, 1), self.constant("", 1, 2)
        shapes = self.draw(st.lists(st.sampled_from(SHAPES), max_size=3))
        kinds = ", ".join(_type(shape, "i32") for shape in shapes)
        name, counter, names = self.fresh(), self.fresh(), [self.fresh() for _ in shapes]
        pairs = ", ".join(f"{one} = {self.one_of(shape)}" for one, shape in zip(names, shapes, strict=True))
        carried = f" iter_args({pairs}) -> ({kinds}) " if shapes else ""
        results = f"{name}:{len(shapes)} = " if len(shapes) > 1 else f"{name} = " * len(shapes)
        self.lines.append(f"{results}scf.for {counter} = {first} to {few} step {step}{carried} : i32 {{")
        with self.inside():
            self.names["", "i32"].append(counter)
            for one, shape in zip(names, shapes, strict=True):
                self.names[shape, "i32"].append(one)
            self.body(self.draw(st.integers(3, 7)), depth - 1)
            passed = ", ".join(self.passed(one, shape) for one, shape in zip(names, shapes, strict=True))
            self.lines += [f"scf.yield {passed} : {kinds}" if shapes else "scf.yield", "}"]
        for place, shape in enumerate(shapes):
            self.pass_out(shape, f"{name}#{place}" if len(shapes) > 1 else name)

    def passed(self, name: str, shape: str) -> str:
        """What follows the carried value of this name."""
        if self.draw(st.sampled_from((True, True, False))):
            return self.one_of(shape)
        kind = _type(shape, "i32")
        after = self.give(shape, "i32", f"arith.addi {name}, {self.constant(shape, 1)} : {kind}")
        over = self.give(shape, "i1", f"arith.cmpi sge, {after}, {self.constant(shape, 3, 5)} : {kind}")
        types = f"{_type(shape, 'i1')}, {kind}" if shape else kind
        return self.give(shape, "i32", f"arith.select {over}, {self.constant(shape, 0, 2)}, {after} : {types}")


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """They read from one tensor and write to another, which lies apart from it."""
    writer = _Writer(draw)
    writer.prelude()
    writer.body(draw(st.integers(6, 14)), 2)
    body = "\n".join(f"    {line}" for line in writer.lines)
    grid = draw(st.sampled_from(((1, 1, 1), (5, 1, 1), (2, 3, 1))))
    return Kernel(body, "%p: !tt.ptr<i32>, %o: !tt.ptr<i32>", grid, (1 << 40, 1 << 42))
