"""Locations: reading every form, looking up aliases, and which source line they come down to."""

from __future__ import annotations

import pytest
from durations import assert_linear

from kprof_inject.errors import KprofError
from kprof_inject.ttgir.locations import (
    MAX_FRAMES,
    MAX_TOTAL_FRAMES,
    CallSite,
    Chain,
    Fused,
    Location,
    LocationTable,
    Named,
    SourcePoint,
    Unknown,
    parse_location,
)
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.parser import parse

HERE = SourcePoint("/a/k.py", 12, 5)
THERE = SourcePoint("/a/k.py", 20, 9)
HELPER = SourcePoint("/lib/std.py", 3, 1)


def return_of(location: str, *aliases: str) -> tuple[LocationTable, Operation]:
    """A kernel's ``tt.return`` that was printed with this location."""
    definitions = "".join(f"{alias}\n" for alias in aliases)
    module = parse(f"module {{\n  tt.func @k() {{\n    tt.return {location}\n  }}\n}}\n{definitions}")
    (operation,) = (operation for operation in module.walk() if operation.name == "tt.return")
    return LocationTable(module), operation


def chains_of(location: str, *aliases: str) -> list[Chain]:
    table, operation = return_of(location, *aliases)
    return list(table.chains_of(operation))


def chains(location: Location) -> list[Chain]:
    table, _ = return_of("")
    return list(table.chains(location))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('loc("/a/k.py":12:5)', HERE),
        ('loc("/a/k.py":12:5 to 12:9)', HERE),
        ('loc("/a/k.py":12:5 to :9)', HERE),
        ('loc("acc")', Named("acc", Unknown())),
        ('loc("acc"("/a/k.py":12:5))', Named("acc", HERE)),
        ('loc("acc"("b"("/a/k.py":12:5)))', Named("acc", Named("b", HERE))),
        ('loc(callsite("/lib/std.py":3:1 at "/a/k.py":12:5))', CallSite(HELPER, HERE)),
        ('loc(callsite("f"("/lib/std.py":3:1) at "/a/k.py":12:5))', CallSite(Named("f", HELPER), HERE)),
        ('loc(fused["/a/k.py":12:5, "/a/k.py":20:9])', Fused((HERE, THERE))),
        ('loc(fused<"CSE">["/a/k.py":12:5, unknown])', Fused((HERE, Unknown()))),
        ('loc(fused<{a = "]>", b = #tt.x<1>}>["/a/k.py":12:5])', Fused((HERE,))),
        ("loc(fused[])", Fused(())),
        ("loc(unknown)", Unknown()),
        ("", Unknown()),
    ],
)
def test_a_location_as_printed(text: str, expected: Location) -> None:
    assert parse_location(text) == expected


@pytest.mark.parametrize(
    ("printed", "file"),
    [
        (r"/a/k.py", "/a/k.py"),
        (r"/a b/(k).py", "/a b/(k).py"),
        (r"C:\\k.py", "C:\\k.py"),
        (r"C:\5Ck.py", "C:\\k.py"),
        (r"a\22b\22.py", 'a"b".py'),
        (r"a\"b.py", 'a"b.py'),
        (r"\C3\A9t\C3\A9.py", "été.py"),
        (r"été.py", "été.py"),
        (r"\FF.py", "\N{REPLACEMENT CHARACTER}.py"),
        (r"", ""),
    ],
)
def test_a_file_name_is_unescaped(printed: str, file: str) -> None:
    assert parse_location(f'loc("{printed}":12:5)') == SourcePoint(file, 12, 5)


def test_escapes_by_letter_are_unescaped() -> None:
    assert parse_location(r'loc("a\tb\n.py":12:5)') == SourcePoint("a\tb\n.py", 12, 5)


def test_an_escape_that_is_none_stands_as_it_is() -> None:
    assert parse_location(r'loc("a\zz.py":12:5)') == SourcePoint(r"a\zz.py", 12, 5)


@pytest.mark.parametrize("text", ["loc(12)", 'loc("a":12)', "loc(callsite(#a))", "loc(#a"])
def test_what_cannot_be_read_is_unknown(text: str) -> None:
    assert parse_location(text) == Unknown()


def test_a_chain_of_aliases() -> None:
    found = chains_of("loc(#loc3)", '#loc1 = loc("/a/k.py":12:5)', '#loc2 = loc("acc"(#loc1))', "#loc3 = loc(#loc2)")

    assert found == [(HERE,)]


def test_aliases_inside_a_location() -> None:
    found = chains_of(
        "loc(fused[callsite(#std at #loc1), #loc1])", '#loc1 = loc("/a/k.py":12:5)', '#std = loc("/lib/std.py":3:1)'
    )

    assert found == [(HELPER, HERE), (HERE,)]


@pytest.mark.parametrize(
    ("aliases", "line"),
    [
        (['#loc1 = loc("a"(#loc1))'], 6),
        (['#loc1 = loc("a"(#loc2))', '#loc2 = loc("b"(#loc1))'], 6),
        (['#loc3 = loc("/a/k.py":12:5)', "#loc1 = loc(fused[#loc3, callsite(#loc3 at #loc1)])"], 7),
        ([*(f"#loc{n} = loc(callsite(#loc{n + 1} at #loc{n + 1}))" for n in range(1, 999)), "#loc999 = loc(#loc1)"], 6),
    ],
    ids=["itself", "each other", "deep inside", "far away"],
)  # fmt: skip
def test_an_alias_that_stands_for_itself_is_an_error(aliases: list[str], line: int) -> None:
    with pytest.raises(KprofError, match="the location #loc1 refers to itself") as caught:
        chains_of("loc(#loc1)", *aliases)

    assert caught.value.where is not None
    assert (caught.value.where.line, caught.value.where.column) == (line, 1)


def test_the_location_of_an_operation_with_regions_stands_behind_its_last_brace() -> None:
    module = parse(
        'module {\n  tt.func @k(%x: i32 loc("x")) {\n    tt.return\n  } {a = 1 : i32} loc("/a/k.py":12:5)\n}\n'
    )
    function = module.operations[0].regions[0].blocks[0].operations[0]

    assert LocationTable(module).chains_of(function) == ((HERE,),)


def test_the_location_of_an_argument_is_not_its_operations() -> None:
    module = parse('module {\n  tt.func @k(%x: i32 loc("x")) {\n    tt.return\n  }\n}\n')
    function = module.operations[0].regions[0].blocks[0].operations[0]

    assert LocationTable(module).chains_of(function) == ()


@pytest.mark.parametrize(("printed", "expected"), [("", ()), (' loc("/a/k.py":12:5)', ((HERE,),))])
def test_a_string_that_looks_like_a_location_is_none(printed: str, expected: tuple[Chain, ...]) -> None:
    module = parse(f'module {{\n  tt.func @k() {{\n    tt.print " loc(unknown)" {{hex = false}}{printed}\n  }}\n}}\n')
    printing = next(operation for operation in module.walk() if operation.name == "tt.print")

    assert LocationTable(module).chains_of(printing) == expected


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (HERE, [(HERE,)]),
        (Unknown(), []),
        (Named("acc", HERE), [(HERE,)]),
        (CallSite(HELPER, HERE), [(HELPER, HERE)]),
        (CallSite(Unknown(), HERE), [(HERE,)]),
        (CallSite(HELPER, Unknown()), [(HELPER,)]),
        (Named("acc", CallSite(HELPER, Named("x", HERE))), [(HELPER, HERE)]),
        (CallSite(CallSite(Named("f", HELPER), THERE), HERE), [(HELPER, THERE, HERE)]),
        (CallSite(HELPER, CallSite(THERE, HERE)), [(HELPER, THERE, HERE)]),
        (Fused(()), []),
        (Fused((Unknown(), THERE, HERE, THERE)), [(THERE,), (HERE,)]),
        (Fused((THERE, CallSite(HELPER, HERE))), [(THERE,), (HELPER, HERE)]),
        (CallSite(Fused((HELPER, THERE)), HERE), [(HELPER, HERE), (THERE, HERE)]),
    ],
)
def test_chains_lead_from_where_code_was_written_through_its_calls(location: Location, expected: list[Chain]) -> None:
    assert chains(location) == expected


def point(line: int) -> str:
    return f'"/a/k.py":{line}:1'


def test_calls_nested_deeper_than_anybody_calls_keep_their_two_ends() -> None:
    deep = [f"#loc{n} = loc(callsite({point(n)} at #loc{n + 1}))" for n in range(1, 3000)]

    (chain,) = chains_of("loc(#loc1)", *deep, f"#loc3000 = loc({point(3000)})")

    half = MAX_FRAMES // 2
    assert [frame.line for frame in chain] == [*range(1, half + 1), *range(3001 - half, 3001)]


@pytest.mark.parametrize(
    "form",
    [
        "callsite(#loc{0} at #loc{0})",
        "fused[#loc{0}, #loc{0}]",
        "fused[callsite(#loc{0} at {1}), callsite(#loc{0} at {2})]",
        'callsite("a"(fused[#loc{0}, {1}]) at "b"(fused[{2}, #loc{0}]))',
        'callsite(callsite("a"("b"(#loc{0})) at #loc{0}) at fused<"CSE">[#loc{0}, #loc{0}])',
    ],
)
def test_aliases_that_double_what_they_stand_for(form: str) -> None:
    aliases = [f"#loc{n + 1} = loc({form.format(n, point(2 * n), point(2 * n + 1))})" for n in range(100)]

    found = chains_of("loc(#loc100)", f"#loc0 = loc({point(7)})", *aliases)

    assert max(map(len, found)) <= MAX_FRAMES
    assert sum(map(len, found)) < MAX_TOTAL_FRAMES + MAX_FRAMES
    assert found[0][0].line == 7


@pytest.mark.parametrize("form", ["callsite({0} at {1})", "callsite({1} at {0})", '"a"({0})', "fused[{0}, {1}]"])
def test_locations_nested_in_each_other_take_linear_time(form: str) -> None:
    def nested(count: int) -> None:
        begin, _, end = form.replace("{1}", point(1)).partition("{0}")
        assert chains_of(f"loc({count * begin}{point(2)}{count * end})")

    nested(10_000)
    assert_linear(nested, few=100)


def test_blanks_in_a_location_take_linear_time() -> None:
    def spaced(count: int) -> None:
        assert parse_location(f"loc(fused{count * ' '}x)") == Unknown()

    assert_linear(spaced)
