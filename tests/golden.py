"""The fixtures, and what Triton's own parser makes of a file."""

from __future__ import annotations

import functools
import gzip
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton._C.libtriton import ir, proton
from triton.backends import backends
from triton.backends.compiler import GPUTarget

from kprof_inject.ttgir.nodes import Module, Operation

FIXTURES = Path(__file__).resolve().parent.parent / "ttgir_fixtures"

Node = tuple[str, tuple[tuple[tuple[Any, ...], ...], ...]]
"""An operation's name and its regions; a region is a tuple of blocks, a block a tuple of nodes."""


def fixtures(version: str = "*") -> list[Path]:
    """The files that Triton printed, ``.ttgir`` or ``.ttgir.gz``: of one version, or of all."""
    return [path for path in _all_fixtures() if version in ("*", path.parts[-3])]


@functools.cache
def _all_fixtures() -> list[Path]:
    found = [*FIXTURES.glob("*/*/*.ttgir"), *FIXTURES.glob("*/*/*.ttgir.gz")]
    return sorted(path for path in found if ".expected." not in path.name)


def installed_fixtures() -> list[Path]:
    """The fixtures of the Triton that is installed: the only ones which it can judge."""
    return fixtures(triton.__version__)


def one_of_each_kernel() -> list[Path]:
    """Those of the installed Triton, of each kernel and form for one target: for another with each version."""
    version = sorted({path.parts[-3] for path in fixtures()}).index(triton.__version__)
    of_kernel: dict[str, list[Path]] = {}
    for path in installed_fixtures():
        of_kernel.setdefault(path.name.removesuffix(".gz"), []).append(path)
    return sorted(paths[(number + version) % len(paths)] for number, paths in enumerate(of_kernel.values()))


def fixture_id(path: Path) -> str:
    """``version/target/kernel``, and ``.form`` where a kernel is printed in another than the usual one."""
    return str(path.relative_to(FIXTURES)).removesuffix(".gz").removesuffix(".ttgir")


def kernel_of(path: Path) -> str:
    """The kernel that a fixture was compiled from: its file's name without folder and suffix."""
    return path.name.split(".")[0]


def form_of(path: Path) -> str:
    """``bare`` or ``generic`` where a fixture is printed in that form, and "" where it is printed as usual."""
    return fixture_id(path).rpartition("/")[2].partition(".")[2]


def beside(path: Path, suffix: str) -> Path:
    """The file that goes with a fixture, such as its kernel's ``.json``."""
    return path.with_name(kernel_of(path) + suffix)


def read(path: Path) -> str:
    """The file's text with its line ends as they are."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def our_tree(module: Module) -> Node:
    """The module as our parser sees it, in the form of ``triton_tree``."""
    (root,) = module.operations
    return _our_node(root)


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
        node = _node(operation.get_name(), regions)
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


def _our_node(operation: Operation) -> Node:
    regions = [
        tuple(
            tuple(_our_node(child) for child in block.operations if not _yields_nothing(child))
            for block in region.blocks
        )
        for region in operation.regions
    ]
    return _node(operation.name, regions)


def _yields_nothing(operation: Operation) -> bool:
    return operation.name == "scf.yield" and "%" not in operation.tail


def _node(name: str, regions: list[Any]) -> Node:
    regions = [region for region in regions if any(region)]
    if name == "ttg.warp_specialize" and len(regions) == 2:
        holder = regions[1][0][0]
        if holder[0] == "ttg.warp_specialize.partitions":
            regions = [regions[0], *holder[1]]
    return "module" if name == "builtin.module" else name, tuple(regions)
