"""What changed between two modules: seeded changes, one at a time, and what other versions of Triton made of the same
kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from golden import FIXTURES, fixture_id, fixtures, kernel_of, read
from snapshots import check

from kprof_inject.analysis.structure.features import features_of, kind_of
from kprof_inject.analysis.structure.structural_changes import StructuralChange, structural_changes
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse

HOPPER = "3.6.0/cuda-90"
EXPECTED = Path(__file__).with_name("between_versions.txt")


@cache
def fixture(name: str) -> str:
    path = FIXTURES / f"{name}.ttgir"
    return read(path if path.exists() else path.with_name(f"{path.name}.gz"))


def unknown(point: SourcePoint) -> str:
    return ""


def changes(a: str, b: str) -> list[StructuralChange]:
    return structural_changes(parse(a, "a.ttgir"), parse(b, "b.ttgir"), unknown, unknown)


def told(found: list[StructuralChange]) -> set[tuple[str, str, int | None]]:
    return {(one.id, str(one.kind or ""), one.source.line if one.source else None) for one in found}


def without_pipeline(text: str) -> str:
    return re.sub(r"(ttg\.async_wait .*)\{num = \d+ : i32\}", r"\1{num = 0 : i32}", text)


def one_iteration_less(text: str) -> str:
    """As many groups fewer may be under way as the loop commits in an iteration."""
    body = text[text.index("scf.for") : text.index("scf.yield")]
    groups = body.count("ttg.async_commit_group")
    return re.sub(r"\{num = (\d+) : i32\}", lambda found: f"{{num = {max(int(found[1]) - groups, 0)} : i32}}", text)


def narrower(text: str) -> str:
    return re.sub(r"(#blocked\d* = .*sizePerThread = \[1, )8\]", r"\g<1>2]", text)


def other_dot(text: str) -> str:
    return re.sub(r"(#mma\d* = .*instrShape = \[16, )\d+", r"\g<1>32", text)


def with_conversion(text: str) -> str:
    """Behind the first dot, at its line."""
    dot = re.search(r"\n( *)%\S+ = (?:ttng\.warp_group_dot|tt\.dot) .*(loc\(#\w+\))\n", text)
    assert dot
    line = f"{dot[1]}%kprof = ttg.convert_layout %cst : tensor<8x8xf32, #mma> -> tensor<8x8xf32, #blocked> {dot[2]}\n"
    return text[: dot.end()] + line + text[dot.end() :]


SEEDS: dict[str, tuple[Callable[[str], str], dict[str, set[tuple[str, str, int | None]]]]] = {
    "a load that is not pipelined": (
        without_pipeline,
        {
            "matmul": {("ahead", "load", 49), ("ahead", "load", 50)},
            "attention": {("ahead", "load", 28), ("ahead", "load", 37)},
            "splitk_matmul": {("ahead", "load", 36), ("ahead", "load", 37)},
            "gelu_matmul": {("ahead", "load", 42), ("ahead", "load", 43)},
            "fp8_matmul": {("ahead", "load", 34), ("ahead", "load", 35)},
        },
    ),
    "one stage less": (
        one_iteration_less,
        {
            "matmul": {("ahead", "load", 49), ("ahead", "load", 50)},
            "splitk_matmul": {("ahead", "load", 36), ("ahead", "load", 37)},
        },
    ),
    "narrower accesses": (
        narrower,
        {
            "matmul": {("bits", "load", 49), ("bits", "load", 50), ("bits", "store", 57)},
            "attention": {("bits", "load", line) for line in (37, 76)} | {("bits", "store", 90)},
        },
    ),
    "another dot": (
        other_dot,
        {
            "matmul": {("instruction", "dot", 51)},
            "attention": {("instruction", "dot", 29), ("instruction", "dot", 38)},
            "tma_matmul": {("instruction", "dot", 18)},
        },
    ),
    "dots on other warps": (
        lambda text: re.sub(r"(#mma\d* = .*warpsPerCTA = \[)4, 1", r"\g<1>2, 2", text),
        {"splitk_matmul": {("warps", "dot", 38)}, "tma_matmul": {("warps", "dot", 18)}},
    ),
    "dots that are awaited at once": (
        lambda text: re.sub(r"(warp_group_dot_wait .*pendings = )\d", r"\g<1>0", text),
        {"splitk_matmul": {("awaited", "dot", 38)}, "tma_matmul": {("awaited", "dot", 18)}},
    ),
    "another place in shared memory": (
        lambda text: re.sub(r"(#shared\d* = .*swizzlingByteWidth = )128", r"\g<1>32", text),
        {"attention": {("swizzle", "shared memory access", 76)}},
    ),
    "a stronger order of memory": (
        lambda text: text.replace("relaxed, gpu", "acq_rel, gpu"),
        {"splitk_matmul": {("memory-order", "atomic", 44)}},
    ),
    "a conversion more": (
        with_conversion,
        {
            "matmul": {("appeared", "layout conversion", 51)},
            "attention": {("appeared", "layout conversion", 29)},
            "splitk_matmul": {("appeared", "layout conversion", 38)},
        },
    ),
    "more warps": (
        lambda text: re.sub(r'("ttg\.num-warps" = )\d+', r"\g<1>16", text),
        {"softmax": {("num_warps", "", None)}, "layer_norm": {("num_warps", "", None)}},
    ),
}
CASES = [(name, kernel) for name, (_, kernels) in SEEDS.items() for kernel in kernels]


@pytest.mark.parametrize(("seed", "kernel"), CASES, ids=[f"{seed}, {kernel}" for seed, kernel in CASES])
def test_a_seeded_change_is_named_at_its_line_and_nothing_else(seed: str, kernel: str) -> None:
    edit, expected = SEEDS[seed]
    text = fixture(f"{HOPPER}/{kernel}")
    edited = edit(text)
    assert edited != text
    assert told(changes(text, edited)) == expected[kernel]


BY_ROWS = "sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [1, 4]"
BY_COLUMNS = "sizePerThread = [1, 8], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1]"
SAME_WARPS = "sizePerThread = [1, 32], threadsPerWarp = [32, 1], warpsPerCTA = [1, 4]"
ALL = "tensor<32x128xf32, #other>"
EXCHANGING = {
    "reduction": f"""%top = "tt.reduce"(%all) <{{axis = 0 : i32}}> ({{
      ^bb0(%a: f32, %b: f32):
        %m = arith.maxnumf %a, %b : f32
        tt.reduce.return %m : f32
      }}) : ({ALL}) -> tensor<128xf32, #ttg.slice<{{dim = 0, parent = #other}}>>""",
    "layout conversion": f"%c = ttg.convert_layout %all : {ALL} -> tensor<32x128xf32, #rows>",
    "shared memory access": f"ttg.local_store %all, %m : {ALL} -> !ttg.memdesc<32x128xf32, #shared, #smem, mutable>",
}


def exchanging(kind: str, layout: str) -> str:
    return f"""
      #rows = #ttg.blocked<{{{BY_ROWS}, order = [1, 0]}}>
      #other = #ttg.blocked<{{{layout}, order = [1, 0]}}>
      #shared = #ttg.swizzled_shared<{{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0]}}>
      #smem = #ttg.shared_memory
      module {{ tt.func @k() {{
        {EXCHANGING[kind]}
      }} }}
    """


@pytest.mark.parametrize(
    ("kind", "layouts", "text"),
    [
        ("reduction", (BY_ROWS, BY_COLUMNS), "within each thread → over 2 threads and 4 warps"),
        ("reduction", (BY_COLUMNS, SAME_WARPS), "over 2 threads and 4 warps → over 32 threads"),
        ("layout conversion", (BY_ROWS, SAME_WARPS), "within each thread → between threads of a warp"),
        ("layout conversion", (SAME_WARPS, BY_COLUMNS), "between threads of a warp → between warps"),
        ("shared memory access", (BY_ROWS, SAME_WARPS), "1 → 8 × the cycles without bank conflicts"),
    ],
)
def test_what_threads_exchange_has_a_name(kind: str, layouts: tuple[str, str], text: str) -> None:
    found = changes(*(exchanging(kind, layout) for layout in layouts))
    assert [one.text for one in found] == [f"{kind}: {text}"]


def affects_other_threads(operation: Operation) -> bool:
    """Whether an operation becomes shuffles, barriers, accesses to shared memory, or work that overlaps with others."""
    traits = operation.traits
    starts = traits.starts_async and not operation.name.endswith(("commit_group", "gen5_commit"))
    return traits.combines_elements or traits.is_wait or traits.is_arrival or traits.accesses_shared or starts


@pytest.mark.parametrize("version", ["3.5.1", "3.9.0"])
def test_whatever_affects_other_threads_has_a_kind(version: str) -> None:
    found = [one for path in fixtures() if path.parts[-3] == version for one in parsed(path).walk()]
    nameless = {one.name for one in found if affects_other_threads(one) and kind_of(one) is None}
    # Allocations without a value, and waits whose groups show in the copies and dots that they wait for.
    assert nameless <= {"ttg.local_alloc", "ttg.async_wait", "ttng.warp_group_dot_wait"}


def test_ops_of_another_order_or_names_are_no_change() -> None:
    text = fixture(f"{HOPPER}/attention")
    renamed = re.sub(r"%(\w+)", r"%v_\1", text)
    assert changes(text, renamed) == []


def test_a_line_is_known_by_what_it_says_though_the_file_was_edited() -> None:
    text = fixture(f"{HOPPER}/matmul")
    moved = re.sub(r'(matmul\.py":)(\d+)', lambda found: f"{found[1]}{int(found[2]) + 7}", text)
    module_a, module_b = parse(text, "a"), parse(moved, "b")
    found = structural_changes(module_a, module_b, lambda at: f"code {at.line}", lambda at: f"code {at.line - 7}")
    assert found == []


def elsewhere(text: str) -> str:
    return re.sub(r'"(/[^"]*\.py)"', r'"/env/new\1"', text)


def with_moved_lines(text: str) -> str:
    return re.sub(r'(\.py":)(\d+)', lambda found: f"{found[1]}{3 * int(found[2]) // 2 + 7}", text)


def with_larger_tiles(text: str) -> str:
    return re.sub(r"\b(tensor|memdesc)<((?:\d+x)+)", lambda found: f"{found[1]}<{larger(found[2])}", text)


def larger(shape: str) -> str:
    return re.sub(r"\d{2,}", lambda size: str(2 * int(size[0])), shape)


@pytest.mark.parametrize("path", [path for path in fixtures() if path.parts[-3] == "3.9.0"], ids=fixture_id)
def test_a_module_from_elsewhere_is_the_same(path: Path) -> None:
    moved = [elsewhere(read(path))]
    # If neither the text nor the number of a line is known, several equal loads in different loops may be taken for
    # each other.
    if kernel_of(path) not in ("early_returns", "layer_norm"):
        moved.append(with_moved_lines(moved[0]))
    for text in moved:
        assert changes(read(path), text) == []
        assert not {"appeared", "gone"} & {one.id for one in changes(read(path), with_larger_tiles(text))}


def test_an_unrolled_loop_is_one_change() -> None:
    found = changes(fixture("3.5.1/cuda-100/attention"), fixture("3.6.0/cuda-100/attention"))
    assert [one.id for one in found] == ["loop"]
    check("analysis/changes", found[0].text, "an unrolled loop")


def test_a_call_is_the_same_though_another_of_its_lines_is_named() -> None:
    """The older version also unrolls the loop of that call."""
    found = changes(fixture("3.5.1/hip-gfx942/attention"), fixture("3.9.0/hip-gfx942/attention"))
    (loop,) = [one for one in found if one.id != "addresses"]
    assert loop.id == "loop"
    check("analysis/changes", loop.text, "an unrolled loop with a call")


def test_how_far_ahead_another_partition_loads_is_not_told() -> None:
    alone, apart = (
        [one.facts.get("ahead") for one in features_of(parse(fixture(name), ""), unknown) if one.kind == "load"]
        for name in ("3.6.0/cuda-100/tma_matmul", "3.6.0/cuda-100/ws_matmul")
    )
    assert alone == [3, 3] and apart == [None, None]


@cache
def parsed(path: Path) -> Module:
    return parse(read(path), str(path))


def versions_of_each_kernel() -> Iterator[list[Path]]:
    found: dict[tuple[str, str], list[Path]] = {}
    for path in fixtures():
        name = path.name.removesuffix(".gz").removesuffix(".ttgir")
        if "." not in name:
            found.setdefault((path.parts[-2], name), []).append(path)
    yield from (sorted(paths) for _, paths in sorted(found.items()))


def report_of(a: Path, b: Path) -> Iterator[str]:
    found = structural_changes(parsed(a), parsed(b), unknown, unknown)
    if found:
        yield f"{b.parts[-2]} {b.name.partition('.')[0]}, {a.parts[-3]} → {b.parts[-3]}"
    for change in found:
        place = f" (line {change.source.line})" if change.source else ""
        yield f"  {change.text}{place}"


@pytest.mark.slow
def test_what_other_versions_made_of_the_fixtures() -> None:
    """Each line of the expected text was looked at in both modules; there are ten times as many pairs as lines."""
    paths = list(versions_of_each_kernel())
    assert sum(len(found) - 1 for found in paths) > 500
    lines = [line for found in paths for a, b in pairwise(found) for line in report_of(a, b)]
    assert lines == EXPECTED.read_text().splitlines()
