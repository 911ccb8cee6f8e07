"""The selector grammar: every form, and where a selector that cannot be read goes wrong."""

from __future__ import annotations

import pytest
from snapshots import check

from kprof_inject.errors import KprofError
from kprof_inject.select import targets
from kprof_inject.select.functions import Function
from kprof_inject.select.selectors import parse_selector, parse_selectors
from kprof_inject.select.targets import SitePattern, SourceLines


def loops(*which: tuple[int, ...] | SourceLines) -> SitePattern:
    return SitePattern(targets.find_loops, (Function.loop_site, *which))


def iterations(*which: tuple[int, ...] | SourceLines) -> SitePattern:
    return SitePattern(targets.find_loops, (Function.iteration_site, *which))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("func", SitePattern(targets.find_kernel)),
        ("loop", loops()),
        ("iter", iterations()),
        ("loop[0]", loops((0,))),
        ("loop[0.2]", loops((0, 2))),
        ("iter[10.0.3]", iterations((10, 0, 3))),
        ("loop@57", loops(SourceLines("", 57, 57))),
        ("iter@file.py:57", iterations(SourceLines("file.py", 57, 57))),
        ("loop@/a b/c/file.py:57", loops(SourceLines("/a b/c/file.py", 57, 57))),
        ("func(_attn_inner)", SitePattern(targets.find_helper, ("_attn_inner",))),
        ("func(kernel.py:9)", SitePattern(targets.find_helper, ("kernel.py:9",))),
        ("op(tt.load)", SitePattern(targets.find_operations, ("tt.load",))),
        ("op(*dot*)", SitePattern(targets.find_operations, ("*dot*",))),
        ("async", SitePattern(targets.find_asynchronous)),
        ("parts", SitePattern(targets.find_parts)),
        ("line(57)", SitePattern(targets.find_lines, (SourceLines("", 57, 57),))),
        ("line(57-63)", SitePattern(targets.find_lines, (SourceLines("", 57, 63),))),
        ("line(a/file.py:57-63)", SitePattern(targets.find_lines, (SourceLines("a/file.py", 57, 63),))),
        ("partition[1]", SitePattern(targets.find_partitions, ("partition[[]1]",))),
        ("partition", SitePattern(targets.find_partitions, ("partition*",))),
        ("default", SitePattern(targets.find_partitions, ("default",))),
        ("marker", SitePattern(targets.find_marked, ("*",))),
        ("marker(load_*)", SitePattern(targets.find_marked, ("load_*",))),
    ],
)
def test_a_site(text: str, target: SitePattern) -> None:
    selector = parse_selector(text)

    assert selector.target == target
    assert (selector.text, selector.kernel, selector.name) == (text, "*", "")


@pytest.mark.parametrize(
    ("text", "kernel", "target", "name"),
    [
        ("matmul_kernel/func", "matmul_kernel", SitePattern(targets.find_kernel), ""),
        ("*matmul*/loop[1]", "*matmul*", loops((1,)), ""),
        ("k?[ab]-x.1/iter", "k?[ab]-x.1", iterations(), ""),
        ("func/func", "func", SitePattern(targets.find_kernel), ""),
        ("func=whole kernel", "*", SitePattern(targets.find_kernel), "whole kernel"),
        ("loop@k.py:57=main", "*", loops(SourceLines("k.py", 57, 57)), "main"),
        ("k*/iter[0.1]=a/b [µs]: it's #1", "k*", iterations((0, 1)), "a/b [µs]: it's #1"),
        ("func= padded ", "*", SitePattern(targets.find_kernel), "padded"),
    ],
)
def test_a_kernel_and_a_name(text: str, kernel: str, target: SitePattern, name: str) -> None:
    selector = parse_selector(text)

    assert (selector.text, selector.kernel, selector.target, selector.name) == (text, kernel, target, name)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("/func", 1),
        ("func[0]", 5),
        ("loop]", 5),
        ("loop[x]", 6),
        ("loop[0.]", 8),
        ("loop@k.py", 6),
        ("a/b/func", 3),
        ("func()", 6),
        ("func(a", 7),
        ("op", 3),
        ("op(a)b", 6),
        ("line(a.py)", 6),
        ("line(57-)", 9),
        ("line(57-63-70)", 11),
        ("loop[12345678901]", 15),
        ("partition()", 11),
        ("async[0]", 6),
        ("func\n", 5),
        ('func="a"', 6),
        ("func=a=b", 7),
    ],
)
def test_the_column_where_a_selector_goes_wrong(text: str, column: int) -> None:
    assert column_of(text) == column


@pytest.mark.parametrize(
    ("text", "column"), [("", 1), ("k/", 3), ("loop[", 6), ("loop[0", 7), ("loop@", 6), ("func=", 6)]
)
def test_a_selector_that_ends_too_early_goes_wrong_behind_its_end(text: str, column: int) -> None:
    assert column_of(text) == column


def hint_of_any() -> str:
    """What a selector may be: the hint for each that cannot be read."""
    with pytest.raises(KprofError) as caught:
        parse_selector("[")
    return caught.value.hint


def column_of(text: str) -> int:
    with pytest.raises(KprofError) as caught:
        parse_selector(text)
    assert repr(text) in caught.value.what
    assert caught.value.hint == hint_of_any()
    assert caught.value.exit_code == 2
    assert caught.value.where is not None
    assert (caught.value.where.file, caught.value.where.line, caught.value.where.text) == ("--at", 1, text)
    return caught.value.where.column


def test_the_diagnostic_as_it_is_printed() -> None:
    with pytest.raises(KprofError) as caught:
        parse_selector("matmul/loop[a]")

    check("select/errors", caught.value.render(), "a selector that cannot be read")


@pytest.mark.parametrize(
    ("text", "column", "meant"),
    [("lop", 1, "loop"), ("k/lop[0]", 3, "loop[0]"), ("markr(a)", 1, "marker(a)"), ("lines(57)", 5, "line(57)")],
)
def test_a_word_that_is_nearly_right(text: str, column: int, meant: str) -> None:
    with pytest.raises(KprofError) as caught:
        parse_selector(text)

    assert caught.value.where is not None and caught.value.where.column == column
    assert caught.value.hint == f"did you mean {meant!r}? {hint_of_any()}"


def test_lines_that_run_backwards_are_refused() -> None:
    with pytest.raises(KprofError) as caught:
        parse_selector("k/line(9-3)")

    assert str(caught.value.where) == "--at:1:3"
    check("select/errors", caught.value.render(), "lines that run backwards")


def test_selectors_keep_their_order() -> None:
    assert [selector.text for selector in parse_selectors(["iter", "loop[0]"])] == ["iter", "loop[0]"]


@pytest.mark.parametrize(
    ("glob", "matches"),
    [("*", True), ("add_kernel", True), ("add*", True), ("a??_k[e]rnel", True), ("add", False), ("ADD*", False)],
)
def test_a_kernel_glob_means_the_whole_name(glob: str, matches: bool) -> None:
    assert parse_selector(f"{glob}/func").matches_kernel("add_kernel") is matches
