"""Locations: reading every form, looking up aliases, and which source line they come down to."""

from __future__ import annotations

import pytest

from kprof_inject.ttgir.locations import (
    CallSite,
    Chain,
    Fused,
    Location,
    LocationTable,
    Named,
    SourcePoint,
    Unknown,
    chains,
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


def location_of(location: str, *aliases: str) -> Location:
    table, operation = return_of(location, *aliases)
    return table.of(operation)


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
    assert location_of(text) == expected


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
    assert location_of(f'loc("{printed}":12:5)') == SourcePoint(file, 12, 5)


def test_escapes_by_letter_are_unescaped() -> None:
    assert location_of(r'loc("a\tb\n.py":12:5)') == SourcePoint("a\tb\n.py", 12, 5)


def test_an_escape_that_is_none_stands_as_it_is() -> None:
    assert location_of(r'loc("a\zz.py":12:5)') == SourcePoint(r"a\zz.py", 12, 5)


@pytest.mark.parametrize("text", ["loc(12)", 'loc("a":12)', "loc(callsite(#a))", "loc(#a"])
def test_what_cannot_be_read_is_unknown(text: str) -> None:
    assert location_of(text) == Unknown()


def test_a_chain_of_aliases() -> None:
    location = location_of(
        "loc(#loc3)", '#loc1 = loc("/a/k.py":12:5)', '#loc2 = loc("acc"(#loc1))', "#loc3 = loc(#loc2)"
    )

    assert location == Named("acc", HERE)


def test_aliases_inside_a_location() -> None:
    location = location_of(
        "loc(fused[callsite(#std at #loc1), #loc1])", '#loc1 = loc("/a/k.py":12:5)', '#std = loc("/lib/std.py":3:1)'
    )

    assert location == Fused((CallSite(HELPER, HERE), HERE))


def test_an_alias_without_a_definition_is_unknown() -> None:
    assert location_of("loc(#loc1)") == Unknown()


def test_an_alias_that_refers_to_itself_ends() -> None:
    assert location_of("loc(#loc1)", '#loc1 = loc("a"(#loc1))') == Named("a", Unknown())


def test_two_aliases_that_refer_to_each_other_end() -> None:
    location = location_of("loc(#loc1)", '#loc1 = loc("a"(#loc2))', '#loc2 = loc("b"(#loc1))')

    assert location == Named("a", Named("b", Unknown()))


def test_the_location_of_an_operation_with_regions_stands_behind_its_last_brace() -> None:
    module = parse(
        'module {\n  tt.func @k(%x: i32 loc("x")) {\n    tt.return\n  } {a = 1 : i32} loc("/a/k.py":12:5)\n}\n'
    )
    function = module.operations[0].regions[0].blocks[0].operations[0]

    assert LocationTable(module).of(function) == HERE


def test_the_location_of_an_argument_is_not_its_operations() -> None:
    module = parse('module {\n  tt.func @k(%x: i32 loc("x")) {\n    tt.return\n  }\n}\n')
    function = module.operations[0].regions[0].blocks[0].operations[0]

    assert LocationTable(module).of(function) == Unknown()


@pytest.mark.parametrize(("printed", "expected"), [("", Unknown()), (' loc("/a/k.py":12:5)', HERE)])
def test_a_string_that_looks_like_a_location_is_none(printed: str, expected: Location) -> None:
    module = parse(f'module {{\n  tt.func @k() {{\n    tt.print " loc(unknown)" {{hex = false}}{printed}\n  }}\n}}\n')
    printing = next(operation for operation in module.walk() if operation.name == "tt.print")

    assert LocationTable(module).of(printing) == expected


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
    assert list(chains(location)) == expected


def test_locations_nested_deeper_than_anybody_calls_tell_nothing() -> None:
    deep = [f'#loc{n} = loc(callsite(#loc{n + 1} at "/a/k.py":{n + 1}:1))' for n in range(3000)]

    table, operation = return_of("loc(#loc0)", *deep)

    assert table.chains_of(operation) == ()
