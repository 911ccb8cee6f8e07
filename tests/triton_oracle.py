"""Triton as the judge: what its own parser and printer make of a module.

A test file that imports this is skipped where there is no Triton.
"""

from __future__ import annotations

import functools
import gzip
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from golden import VERSIONS, Node, fixtures, tree_node

pytest.importorskip("triton")

import triton
from triton._C import libtriton  # noqa: F401
from triton._C.libtriton import ir, proton
from triton.backends import backends
from triton.backends.compiler import GPUTarget


def installed_fixtures() -> list[Path]:
    """The fixtures of the Triton that is installed: the only ones which it can judge."""
    return fixtures(triton.__version__)


def one_of_each_kernel() -> list[Path]:
    """Return the installed Triton's files: each kernel and form for one target, another target with each version."""
    version = VERSIONS.index(triton.__version__)
    of_kernel: dict[str, list[Path]] = {}
    for path in installed_fixtures():
        of_kernel.setdefault(path.name.removesuffix(".gz"), []).append(path)
    return sorted(paths[(number + version) % len(paths)] for number, paths in enumerate(of_kernel.values()))


def triton_tree(path: Path) -> Node:
    """The module as Triton's own parser sees it.

    Printing may leave out what goes without saying, so both trees do: the ``scf.yield`` of nothing, a region of
    nothing, and the operation that holds the partitions of ``ttg.warp_specialize``.
    """
    blocks_of: dict[int, dict[int, list[Node]]] = {}
    root: list[Node] = []

    def visit(operation: Any) -> None:  # children come before their parents
        regions = [
            tuple(tuple(block) for block in blocks_of.get(operation.get_region(index).id(), {}).values())
            for index in range(operation.get_num_regions())
        ]
        node = tree_node(operation.get_name(), regions)
        block = operation.get_block()
        if block is None:
            root.append(node)
        else:
            siblings = blocks_of.setdefault(block.get_parent().id(), {}).setdefault(block.id(), [])
            if node[0] != "scf.yield" or operation.get_num_operands():
                siblings.append(node)

    parse_with_triton(path).walk(visit)
    return root[0]


def parse_with_triton(path: Path) -> Any:
    """Triton's module, from a file that may be compressed. Raises ``RuntimeError`` for one that it does not take."""
    if path.suffix == ".gz":
        with tempfile.NamedTemporaryFile(suffix=".ttgir") as plain:
            plain.write(gzip.decompress(path.read_bytes()))
            plain.flush()
            return parse_with_triton(Path(plain.name))
    context = _context()
    module = ir.parse_mlir_module(str(path), context)
    module.context = context  # the module must not outlive it
    return module


@functools.cache
def _context() -> Any:
    """With all dialects. One for all modules: making it takes as long as parsing one."""
    context = ir.context()
    ir.load_dialects(context)
    for backend, target in (("nvidia", GPUTarget("cuda", 90, 32)), ("amd", GPUTarget("hip", "gfx942", 64))):
        backends[backend].compiler(target).load_dialects(context)
    proton.load_dialects(context)
    return context


def printed_by_triton(text: str) -> dict[str, str]:
    """A module in the forms that Triton's bindings print."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ttgir")
        path.write_text(text)
        module = parse_with_triton(path)
    forms = {"as usual": module.str(), "bare": module.str_nodebug(), "local": _dumped(module)}
    # The printer falls back to the generic form for a module that does not verify: here one with a number of warps that
    # its layouts contradict.
    warps = module.get_int_attr("ttg.num-warps")
    module.set_attr("ttg.num-warps", ir.builder(module.context).get_int32_attr(2 * warps))
    for name, generic in {"generic": module.str(), "generic, local": _dumped(module)}.items():
        if '"builtin.module"() (' in generic:  # a module without layouts verifies
            forms[name] = re.sub(rf'("ttg.num-warps" = ){2 * warps}\b', rf"\g<1>{warps}", generic)
    return forms


def _dumped(module: Any) -> str:
    """Return what Triton writes to stderr, without aliases."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as written:
        stderr = os.dup(2)
        os.dup2(written.fileno(), 2)
        try:
            module.dump()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        written.seek(0)
        return written.read().decode()
