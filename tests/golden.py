"""The fixtures: where they are, what they are called, what is in them; and a module as a tree of names."""

from __future__ import annotations

import functools
import gzip
import re
from pathlib import Path
from typing import Any

from kprof_inject.ttgir.nodes import Module, Operation

_OPERATION = re.compile(r"\b(?:arith|cf|gpu|math|nvg|nvvm|rocdl|scf|tt|ttg|ttng|amdg?)\.[a-z_0-9.]+")
FIXTURES = Path(__file__).resolve().parent.parent / "ttgir_fixtures"

VERSIONS = sorted((path.name for path in FIXTURES.glob("[0-9]*")), key=lambda name: [*map(int, name.split("."))])
"""The Tritons that printed the fixtures, oldest first."""
NEWEST = VERSIONS[-1]

Node = tuple[str, tuple[tuple[tuple[Any, ...], ...], ...]]
"""An operation's name and its regions; a region is a tuple of blocks, a block a tuple of nodes."""


def fixtures(version: str = "*") -> list[Path]:
    """The files that Triton printed, ``.ttgir`` or ``.ttgir.gz``: of one version, or of all."""
    return [path for path in _all_fixtures() if version in ("*", path.parts[-3])]


@functools.cache
def _all_fixtures() -> list[Path]:
    found = [*FIXTURES.glob("*/*/*.ttgir"), *FIXTURES.glob("*/*/*.ttgir.gz")]
    return sorted(path for path in found if ".expected." not in path.name)


def distinct(paths: list[Path]) -> list[Path]:
    """The newest of the files for each set of operations in them: most Tritons print the same ones."""
    return sorted({frozenset(_OPERATION.findall(read(path))): path for path in paths}.values())


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
    """The module as our parser sees it, as a tree of operation names."""
    (root,) = module.operations
    return _our_node(root)


def _our_node(operation: Operation) -> Node:
    regions = [
        tuple(
            tuple(_our_node(child) for child in block.operations if not _yields_nothing(child))
            for block in region.blocks
        )
        for region in operation.regions
    ]
    return tree_node(operation.name, regions)


def _yields_nothing(operation: Operation) -> bool:
    return operation.name == "scf.yield" and "%" not in operation.tail


def tree_node(name: str, regions: list[Any]) -> Node:
    """A node without what printing may leave out: empty regions, the holder of the partitions of a specialised one."""
    regions = [region for region in regions if any(region)]
    if name == "ttg.warp_specialize" and len(regions) == 2:
        holder = regions[1][0][0]
        if holder[0] == "ttg.warp_specialize.partitions":
            regions = [regions[0], *holder[1]]
    return "module" if name == "builtin.module" else name, tuple(regions)
