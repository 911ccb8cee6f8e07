"""The changes that ``seeded.py`` makes in the TTGIR of its kernels, and what a report has to call each.

Some are edits of the text. Others, where much has to change together, are what the compiler makes of the same kernel
with another option or constant. Names of values are those of Triton 3.6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernels import KERNELS, Kernel

Edit = Callable[[str], str]


@dataclass(frozen=True)
class Named:
    """What a change of the report is: the ids and the kind that it may have, and a part of its text."""

    ids: Sequence[str]
    kind: str | None = None
    text: str = ""

    def is_by(self, change: Mapping[str, Any]) -> bool:
        return change["id"] in self.ids and change["kind"] == self.kind and self.text in change["text"]


CHANGES = {
    "unpipelined": Named(("ahead",), "load", "no longer pipelined"),
    "shallower": Named(("ahead",), "load", "issued 2 → 1 iteration ahead"),
    "narrow": Named(("bits",), "load", "bits per thread"),
    "converted": Named(("appeared", "count"), "layout conversion"),
    "dot": Named(("instruction",), "dot"),
    "spilled": Named(("maxnreg", "spills")),
}
"""What is seeded, each in several kernels."""


@dataclass(frozen=True)
class Seed:
    """One change in one kernel. ``lines`` are the source lines that the report has to name. It is made by ``edit``, or
    else by compiling with ``compiled_with``."""

    kernel: str
    change: str
    lines: Sequence[str] = ()
    edit: Edit | None = None
    compiled_with: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kernel}.{self.change}"

    @property
    def named(self) -> Named:
        return CHANGES[self.change]

    def ttgir(self) -> str:
        """The kernel's TTGIR with the change."""
        kernel = KERNELS[self.kernel]
        if self.edit is None:
            return str(kernel.compiled(**self.compiled_with).asm["ttgir"])
        text = str(kernel.compiled().asm["ttgir"])
        edited = self.edit(text)
        if edited == text:
            raise SystemExit(
                f"{self.change} of {self.kernel} changes nothing: its TTGIR is not what it was written for"
            )
        return edited

    def line_numbers(self) -> set[int]:
        kernel: Kernel = KERNELS[self.kernel]
        return {kernel.line(code) for code in self.lines}


def narrowed(access: str, elements: int) -> Edit:
    """The layout of the operation that matches has so many elements per thread, and what is copied with it, too."""

    def edit(text: str) -> str:
        found = re.search(rf"{access}.*?, (#\w+)>", text)
        if found is None:
            return text
        layout = found[1]
        text = re.sub(rf"(?m)^({layout} = .*sizePerThread = \[(?:1, )?)\d+((?:, 1)?\])", rf"\g<1>{elements}\2", text)
        copies = rf"(?m)^(.* = ttg\.async_copy_global_to_local .*\{{contiguity = )\d+( .*, {layout}>.*)$"
        return re.sub(copies, rf"\g<1>{elements}\2", text)

    return edit


def round_trip(variable: str, operation: str, through: str) -> Edit:
    """Behind the first such operation that makes a variable's value, converts that to another layout and back; the rest
    of its block uses what comes back."""

    def edit(text: str) -> str:
        typed = r"(?:->|:) (tensor<([^,]*), #\w+>)(?:, tensor<.*>)?"
        found = re.search(rf"(?m)^( *)(%{variable}\w*) = {operation} .* {typed} (loc\(#\w+\))$", text)
        if found is None:
            return text
        indent, name, there, element, location = found.groups()
        away = f"tensor<{element}, #through>"
        lines = [
            f"%through_a = ttg.convert_layout {name} : {there} -> {away} {location}",
            f"%through_b = ttg.convert_layout %through_a : {away} -> {there} {location}",
        ]
        end = text.index(f"\n{indent[2:]}}}", found.end())
        rest = re.sub(rf"{name}\b", "%through_b", text[found.end() : end])
        return "".join(
            [f"#through = {through}\n", text[: found.end()], *(f"\n{indent}{line}" for line in lines), rest, text[end:]]
        )

    return edit


def at_most(registers: int) -> Edit:
    """The assembler has so few registers for a thread that it spills."""
    return lambda text: text.replace(
        "module attributes {", f'module attributes {{"ttg.maxnreg" = {registers} : i32, ', 1
    )


def smaller_instruction(n: int) -> Edit:
    return lambda text: re.sub(r"(?m)^(#mma = .*instrShape = \[16, )\d+", rf"\g<1>{n}", text)


ROWS = "#ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1], order = [1, 0]}>"
COLUMNS = "#ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [32, 1], warpsPerCTA = [1, 4], order = [0, 1]}>"
SINGLE = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"

A, B, K, V, X = (
    "a = tl.load(a_ptrs)",
    "b = tl.load(b_ptrs)",
    "k = tl.load(k_ptrs + start_n * stride_row)",
    "v = tl.load(v_ptrs + start_n * stride_row)",
    "x = tl.load(x_ptrs)",
)
QK = "scores = tl.dot(q, k) * qk_scale"
PV = "acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None])"

_SEEDS = (
    Seed("matmul", "unpipelined", (A, B), compiled_with={"num_stages": 1}),
    Seed("matmul", "shallower", (A, B), compiled_with={"num_stages": 2}),
    Seed("matmul", "narrow", (A,), narrowed("%a_.* = ttg.async_copy", 2)),
    Seed("matmul", "converted", ("a_ptrs += BLOCK_K * stride_ak",), round_trip("a_ptrs_9", "tt.addptr", COLUMNS)),
    Seed("matmul", "dot", ("acc = tl.dot(a, b, acc)",), smaller_instruction(32)),
    Seed("matmul", "spilled", (), at_most(96)),
    Seed("attention", "unpipelined", (K, V), compiled_with={"num_stages": 1}),
    Seed("attention", "shallower", (K, V), compiled_with={"num_stages": 2}),
    Seed("attention", "narrow", (K,), narrowed("%k_.* = ttg.async_copy", 2)),
    Seed("attention", "converted", (QK,), round_trip("scores", "arith.mulf", ROWS)),
    Seed("attention", "dot", (QK, PV), smaller_instruction(16)),
    Seed("attention", "spilled", (), at_most(96)),
    Seed(
        "softmax",
        "narrow",
        ('x = tl.load(x_ptr + start + offsets, mask=mask, other=-float("inf")).to(tl.float32)',),
        narrowed("%x_.* = tt.load", 1),
    ),
    Seed(
        "softmax", "converted", ("weights = tl.exp(x - tl.max(x, axis=0))",), round_trip("weights", "math.exp", SINGLE)
    ),
    Seed("column_sums", "unpipelined", (X,), compiled_with={"STAGES": 1}),
    Seed("column_sums", "shallower", (X,), compiled_with={"STAGES": 2}),
    Seed("column_sums", "narrow", (X,), narrowed("%x_.* = ttg.async_copy", 1)),
    Seed("column_sums", "converted", ("total = total * 0.5 + x",), round_trip("total", "arith.addf", COLUMNS)),
    Seed("grouped_matmul", "unpipelined", (A, B), compiled_with={"num_stages": 1}),
    Seed("grouped_matmul", "shallower", (A, B), compiled_with={"num_stages": 2}),
    Seed("grouped_matmul", "narrow", (A,), narrowed("%a_.* = ttg.async_copy", 1)),
    Seed(
        "grouped_matmul",
        "converted",
        ("acc = tl.dot(a, b, acc, input_precision=PRECISION)",),
        round_trip("acc", "tt.dot", ROWS),
    ),
    Seed(
        "grouped_matmul",
        "dot",
        ("acc = tl.dot(a, b, acc, input_precision=PRECISION)",),
        compiled_with={"PRECISION": "ieee"},
    ),
    Seed("grouped_matmul", "spilled", (), at_most(48)),
)
SEEDS = {seed.name: seed for seed in _SEEDS}
