"""What the parser makes of each form of TTGIR, and what its nodes say about the text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from golden import beside, fixture_id, fixtures, form_of, our_tree, read
from ttgir_forms import FORMS, Form, outline

from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse

AS_USUAL = {beside(path, ""): path for path in fixtures() if not form_of(path)}
IN_ANOTHER_FORM = [path for path in fixtures() if form_of(path)]
LEADING_GAP = re.compile(r"^(?:\s+|//.*\n)+")


@pytest.mark.parametrize("form", FORMS.values(), ids=repr)
def test_outline(form: Form) -> None:
    assert outline(parse(form.text)) == form.outline


@pytest.mark.parametrize("form", FORMS.values(), ids=repr)
def test_outline_with_windows_line_ends(form: Form) -> None:
    assert outline(parse(form.text.replace("\n", "\r\n"))) == form.outline


@pytest.mark.parametrize("form", FORMS.values(), ids=repr)
def test_outline_without_an_end_of_the_last_line(form: Form) -> None:
    assert outline(parse(form.text.rstrip())) == form.outline


@pytest.mark.parametrize("path", fixtures(), ids=fixture_id)
def test_the_operations_of_a_fixture_span_its_text(path: Path) -> None:
    module = parse(read(path))
    assert module.text == read(path)
    check_spans(module, module.operations, 0, len(module.text))


@pytest.mark.parametrize("path", IN_ANOTHER_FORM, ids=fixture_id)
def test_a_kernel_is_the_same_in_every_form(path: Path) -> None:
    usual = AS_USUAL[beside(path, "")]

    assert read(path) != read(usual)
    assert our_tree(parse(read(path))) == our_tree(parse(read(usual)))


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("form", FORMS.values(), ids=repr)
def test_the_operations_of_a_form_span_its_text(form: Form, newline: str) -> None:
    module = parse(form.text.replace("\n", newline))
    check_spans(module, module.operations, 0, len(module.text))


def check_spans(module: Module, operations: tuple[Operation, ...], first: int, last: int) -> None:
    """Siblings follow each other inside ``first`` and ``last``; what follows begins on another line, or on this one."""
    for operation in operations:
        assert first <= operation.start < operation.end <= last
        assert module.text[operation.end - 1] == "\n" or not module.text[operation.end].isspace()
        head = LEADING_GAP.sub("", module.text[operation.start :].removeprefix(operation.results))
        assert head.startswith((operation.name + operation.tail, f'"{operation.name}"{operation.tail}'))
        assert module.text[: operation.end].endswith(operation.closing or operation.tail)

        inside = operation.start + len(operation.results)
        for region in operation.regions:
            assert region.operation is operation
            for block in region.blocks:
                assert block.region is region and all(child.block is block for child in block.operations)
                assert inside <= block.start
                check_spans(module, block.operations, block.start, operation.end - len(operation.closing))
                inside = block.operations[-1].end if block.operations else block.start
        first = operation.end


def operation_named(module: Module, name: str, index: int = 0) -> Operation:
    return [operation for operation in module.walk() if operation.name == name][index]


def test_an_operation_keeps_its_results_tail_and_closing_line() -> None:
    loop = operation_named(parse(FORMS["control flow"].text), "scf.for", 1)

    assert loop.results == "%sum, %last ="
    assert loop.tail == " %i = %c0 to %n step %c1 iter_args(%a = %c0, %b = %c0) -> (i32, i32)  : i32 {\n"
    assert loop.closing == "} {tt.loop_unroll_factor = 2 : i32}\n"


def test_an_operation_without_results_and_regions() -> None:
    branch = operation_named(parse(FORMS["block labels"].text), "cf.br")

    assert (branch.results, branch.tail, branch.closing, branch.regions) == ("", " ^bb3\n", "", ())


def test_an_operation_of_clauses_keeps_the_line_that_ends_the_last() -> None:
    specialize = operation_named(parse(FORMS["warp specialization"].text), "ttg.warp_specialize")

    assert specialize.results == "%0 ="
    assert specialize.tail == "(%x) attributes {requestedRegisters = array<i32: 24, 24>}\n"
    assert specialize.closing == "} : (i32) -> i32\n"


def test_an_empty_region_has_an_empty_block_behind_its_brace() -> None:
    module = parse(FORMS["control flow"].text)
    (region,) = operation_named(module, "scf.for").regions
    (block,) = region.blocks

    assert block.operations == ()
    assert module.text[block.start :].startswith("    } {tt.num_stages = 3 : i32}\n")


def test_a_region_ends_at_its_brace() -> None:
    module = parse(FORMS["control flow"].text)
    then, otherwise = operation_named(module, "scf.if").regions

    assert module.text[then.end :].startswith("} else {\n        scf.if")
    assert module.text[otherwise.end :].startswith("}\n      scf.yield %next")


def test_a_labelled_block_begins_behind_its_label() -> None:
    module = parse(FORMS["block labels"].text)
    blocks = operation_named(module, "tt.func").regions[0].blocks

    assert [block.label for block in blocks] == ["", "^bb1", "^bb2", "^bb3"]
    assert [module.text[block.start :].split("\n", 1)[0] for block in blocks] == [
        "    cf.cond_br %c, ^bb1, ^bb2(%x : i32)",
        "    tt.return",
        "    %0 = arith.addi %y, %x : i32",
        "    tt.return",
    ]


def test_aliases_map_names_to_definitions() -> None:
    text = "!ptr = !tt.ptr<f32> // of floats\n" + FORMS["locations"].text

    assert parse(text).aliases == {
        "!ptr": "!tt.ptr<f32> // of floats",
        "#loc": 'loc("/a/k.py":8:0)',
        "#loc1": 'loc("/a/k.py":9:4)',
        "#loc2": 'loc("x"(#loc))',
        "#loc3": 'loc("/a/k.py":10:4)',
    }


def test_file_metadata_is_no_operation() -> None:
    (module,) = parse(FORMS["file metadata"].text).operations

    assert FORMS["file metadata"].text[module.end :].startswith("\n{-#\n")


def test_walk_follows_the_text() -> None:
    names = [operation.name for operation in parse(FORMS["block labels"].text).walk()]

    assert names == ["module", "tt.func", "cf.cond_br", "tt.return", "arith.addi", "cf.br", "tt.return"]


def test_a_module_knows_its_lines() -> None:
    module = parse("module {\r\n \ttt.func @k() {\r\n    tt.return\r\n  }\r\n}\r\n", "k.ttgir")
    at_return = module.text.index("return")

    assert str(module.position(at_return)) == "k.ttgir:3:8"
    assert module.position(at_return).text == "    tt.return"
    assert module.line_start(at_return) == module.text.index("    tt.return")
    assert module.indent_at(at_return) == "    "
    assert module.indent_at(module.text.index("tt.func")) == " \t"
    assert module.newline == "\r\n"


PARAMETERS = [
    "#ttg.padded_shared<[512:+16] {order = [1, 0], shape = [64, 64]}>",
    "#ttg.padded_shared<[64:+4, 512:+16] {offset = [[0, 1], [1, 0]], block = []}>",
    "#ttg.partitioned_shared<2, #ttg.padded_shared<[512:+16] {order = [1, 0], shape = [64, 64]}>, 1>",
    "#ttg.other<[1], {}>",
    "#ttg.other<{a = 1}, [2] {b = {c = 3}}, #ttg.swizzled_shared<{vec = 1}>>",
]


@pytest.mark.parametrize("attribute", PARAMETERS)
def test_parameters_of_an_attribute_in_braces_are_no_region(attribute: str) -> None:
    kind = f"!ttg.memdesc<64x64xf16, {attribute}, #smem, mutable>"
    text = f"""module {{
  tt.func @k(%q: {kind}) {{
    %x:2 = scf.for %i = %a to %b step %c iter_args(%d = %q, %e = %r) -> ({kind}, i32)  : i32 {{
      %f = scf.if %c -> ({kind}) {{
        scf.yield %d : {kind}
      }} else {{
        scf.yield %q : {kind}
      }}
      scf.yield %f, %e : {kind}, i32
    }}
    %y = scf.while (%d = %q) : ({kind}) -> {kind} {{
      scf.condition(%c) %d : {kind}
    }} do {{
    ^bb0(%d: {kind}):
      scf.yield %d : {kind}
    }}
    ttg.warp_specialize(%q)
    default {{
      ttg.warp_yield
    }}
    partition0(%p: {kind}) num_warps(4) {{
      ttg.warp_return
    }} : ({kind}) -> ()
    tt.return
  }}
}}
"""
    names = [operation.name for operation in parse(text).walk()]

    yields = ["scf.yield"] * 3
    assert names == [
        *("module", "tt.func", "scf.for", "scf.if", *yields, "scf.while", "scf.condition", "scf.yield"),
        *("ttg.warp_specialize", "ttg.warp_yield", "ttg.warp_return", "tt.return"),
    ]
