"""Tags: how they are written, which values they take, what is inserted for them, and what is said of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden import FIXTURES, fixture_id, fixtures, form_of, kernel_of, read
from planning import insertion_of, plan_of, tagged_loops
from snapshots import check

from kprof_inject.capture.schema import MAX_TAGS
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.rewrite import strip
from kprof_inject.select.plan import max_records, table_json
from kprof_inject.select.selectors import parse_selector
from kprof_inject.select.tags import CARRIER, Tag
from kprof_inject.ttgir.parser import parse

GROUPED = Path(FIXTURES, "3.6.0/cuda-90/grouped_gemm.ttgir")
TAGGED = [
    path
    for path in fixtures()
    if kernel_of(path) in {"matmul", "ws_matmul", "grouped_gemm"} and form_of(path) in ("", "bare")
]

KERNEL = """\
module attributes {{ttg.target = "{target}"}} {{
  tt.func public @k(%p: !tt.ptr<i32>, %small: i8, %flag: i1, %wide: i64, %n: i32) {{
    %c = arith.constant 4 : i32
    %x = arith.constant dense<1> : tensor<4xi32>
    %at = arith.index_cast %n : i32 to index
    tt.store %p, %n : !tt.ptr<i32>
    tt.return
  }}
}}
"""


def kernel(target: str = "cuda:90") -> str:
    return KERNEL.format(target=target)


@pytest.mark.parametrize("path", TAGGED, ids=fixture_id)
def test_what_is_inserted_is_stripped_to_the_last_byte(path: Path) -> None:
    text = read(path)
    tags = tagged_loops(text)
    done = insertion_of(text, *tags, "func", "iter")
    assert done.text.count(CARRIER) == len(tags) > 0
    assert strip(parse(done.text)) == text


def lines_before(text: str, record: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index(record)
    begin = next(number for number in range(at, 0, -1) if not lines[number - 1].startswith(("%kprof", "proton")))
    return lines[begin : at + 1]


def test_the_records_of_tags_stand_before_the_start_of_their_scope() -> None:
    done = insertion_of(kernel(), "op(tt.store)=write --tag n=n --tag small=%small")
    carrier = 'tt.elementwise_inline_asm "// kprof_tag" {constraints = "=r,0", packed_element = 1 : i32, pure = false}'
    assert lines_before(done.text, 'proton.record start "write"') == [
        f"%kprof.tag.0 = {carrier} %n : i32 -> i32",
        'proton.record start "write --tag n"',
        'proton.record end "write --tag n"',
        "%kprof.tag.1.i32 = arith.extsi %small : i8 to i32",
        f"%kprof.tag.1 = {carrier} %kprof.tag.1.i32 : i32 -> i32",
        'proton.record start "write --tag small"',
        'proton.record end "write --tag small"',
        'proton.record start "write"',
    ]
    (table,) = table_json(done.plan.table)["scopes"]
    assert table["tags"] == [
        {"name": "n", "record": "write --tag n", "value": "%n", "is_wide": False},
        {"name": "small", "record": "write --tag small", "value": "%small", "is_wide": False},
    ]
    assert max_records(done.view, done.plan) == 2 + 2 * 2 + 2, "with the kernel's body"


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("flag", ["arith.extui %flag : i1 to i32", "arith.extui %kprof.tag.0.i32 : i32 to i64"]),
        ("%at", ["arith.index_cast %at : index to i32", "arith.extui %kprof.tag.0.i32 : i32 to i64"]),
        ("n", ["arith.extui %n : i32 to i64"]),
    ],
)
def test_amd_reads_its_clock_as_a_whole(value: str, made: list[str]) -> None:
    text = insertion_of(kernel("hip:gfx942"), f"op(tt.store) --tag x={value}").text
    *widened, carrier = (line.strip() for line in text.splitlines() if "%kprof.tag" in line)
    assert [line.partition(" = ")[2] for line in widened] == made
    assert '"=v,0"' in carrier
    assert carrier.endswith(": i64 -> i64")


def test_a_wide_value_is_recorded_in_two_halves() -> None:
    done = insertion_of(kernel(), "op(tt.store) --tag x=wide")
    low, high = (line.strip() for line in done.text.splitlines() if "// kprof_half" in line)
    assert low.endswith("%kprof.tag.0.low : i32 -> i32") and high.endswith("%kprof.tag.0.high : i32 -> i32")
    assert "%kprof.tag.0.low = arith.trunci %wide : i64 to i32" in done.text
    (table,) = table_json(done.plan.table)["scopes"]
    assert table["tags"] == [{"name": "x", "record": "tt.store --tag x", "value": "%wide", "is_wide": True}]


def taken(selector: str) -> dict[str, str]:
    plan = plan_of(read(GROUPED), selector)
    return {scope.record: scope.tags[0].value for scope in plan.scopes}


def test_a_variable_is_what_was_assigned_to_it_last_before_the_site() -> None:
    """``tile`` is also what ``tile += num_programs`` calls its parts, one of which stands before all loops."""
    assert taken("loop --tag t=tile") == {"loop[0]": "%tile", "loop[0.0]": "%tile_5", "loop[0.0.0]": "%tile_18"}
    assert taken("iter[0.0] --tag n=tiles_n") == {"iter[0.0]": "%tiles_n_11"}


HANDED_ON = """\
module attributes {ttg.target = "cuda:90"} {
  tt.func public @k(%n: i32) {
    %zero = arith.constant 0 : i32
    %seen = arith.constant 1 : i32 loc("seen"("k.py":2:1))
    %acc_1:3 = scf.for %acc_2 = %zero to %n step %seen iter_args(%b = %n, %a = %zero, %acc_3 = %zero)
        -> (i32, i32, i32) : i32 {
      gpu.barrier loc("k.py":4:1)
      %seen_4 = arith.addi %a, %b : i32 loc("seen"("k.py":5:1))
      scf.yield %a, %b, %acc_3 : i32, i32, i32
    } loc("acc"("b"("a"("k.py":3:1))))
    tt.return loc("k.py":6:1)
  }
}
"""


@pytest.mark.parametrize(
    ("selector", "value"),
    [
        ("op(gpu.barrier) --tag t=a", "%a"),
        ("op(gpu.barrier) --tag t=acc", "%acc_3"),
        ("op(tt.store) --tag t=a", "%acc_1#1"),
        ("op(tt.store) --tag t=b", "%acc_1#0"),
        ("op(tt.store) --tag t=acc", "%acc_1#2"),
    ],
)
def test_what_a_loop_hands_on_is_told_by_what_its_body_calls_it(selector: str, value: str) -> None:
    """Not by its location, which has the variables in another order; and what is counted is none of them."""
    text = HANDED_ON.replace("    tt.return", '    tt.store %p, %n : !tt.ptr<i32> loc("k.py":6:1)\n    tt.return')
    text = text.replace("(%n: i32)", "(%n: i32, %p: !tt.ptr<i32>)")
    (table,) = table_json(insertion_of(text, selector).plan.table)["scopes"]
    assert [tag["value"] for tag in table["tags"]] == [value]


def test_what_the_compiler_hands_on_has_no_variable() -> None:
    pipelined = HANDED_ON.replace("%b = %n, %a", "%acc_5 = %n, %arg1")
    with pytest.raises(KprofError) as refused:
        insertion_of(pipelined, "op(gpu.barrier) --tag t=acc")
    check("select/errors", refused.value.render(), "a tag without a variable")


def test_a_variable_that_a_loop_or_branch_assigns_is_not_taken_from_before_it() -> None:
    text = HANDED_ON.replace("    tt.return", "    gpu.barrier\n    tt.return")
    with pytest.raises(KprofError) as refused:
        insertion_of(text.replace("      gpu.barrier", "      //"), "op(gpu.barrier) --tag t=seen")
    check("select/errors", refused.value.render(), "a tag that a loop assigns")
    with pytest.raises(KprofError) as refused:
        insertion_of(HANDED_ON, "op(gpu.barrier) --tag t=seem")
    check("select/errors", refused.value.render(), "a tag by another name")


PIPELINED = """\
module attributes {ttg.target = "cuda:90"} {
  tt.func public @k(%n: i32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    scf.for %arg1 = %zero to %n step %one : i32 {
      gpu.barrier
    } loc("k.py":2:1)
    tt.return
  }
}
"""


@pytest.mark.parametrize(
    ("source", "is_known"),
    [
        ("def k(n):\n  for block in range(n):\n    pass\n", True),
        ("def k(n):\n  for block in tl.range(n, flatten=True):\n    pass\n", False),
        ("def k(n):\n  for block in range(n):\n    for _ in range(2):\n      pass\n", False),
        ("def k(n):\n  for block, other in range(n):\n    pass\n", False),
        ("def k(n:\n  for block in range(n):\n", False),
    ],
)
def test_what_a_pipelined_loop_counts_has_the_name_that_the_source_gives_it(source: str, is_known: bool) -> None:
    selector = "op(gpu.barrier)=b --tag block=block"
    if is_known:
        (table,) = table_json(insertion_of(PIPELINED, selector, sources={"k.py": source}).plan.table)["scopes"]
        assert table["tags"] == [{"name": "block", "record": "b --tag block", "value": "%arg1", "is_wide": False}]
    else:
        with pytest.raises(KprofError, match="block is not visible"):
            insertion_of(PIPELINED, selector, sources={"k.py": source})


@pytest.mark.parametrize(
    ("selector", "what", "case"),
    [
        ("op(tt.store) --tag x=nobody", "tag x of tt.store: nobody ", "a tag of no value"),
        ("func --tag x=%c", "tag x of func: %c ", "a tag that is not visible"),
        ("op(tt.store) --tag x=%x", "tag x of tt.store: %x ", "a tag that is a tensor"),
        ("op(tt.store) --tag x=p", "tag x of tt.store: p ", "a tag that is a pointer"),
    ],
)
def test_a_value_that_cannot_be_recorded(selector: str, what: str, case: str) -> None:
    with pytest.raises(KprofError) as raised:
        insertion_of(kernel(), selector)
    assert raised.value.what.startswith(what)
    check("select/errors", raised.value.render(), case)
    assert "%small, %flag, %wide, %n" in raised.value.hint
    assert raised.value.where is not None


def test_what_is_outside_of_a_partition_is_not_visible_in_it() -> None:
    text = read(Path(FIXTURES, "3.9.0/cuda-100/ws_matmul.ttgir"))
    plan_of(text, "default --tag tiles=tiles")
    with pytest.raises(KprofError, match="tiles is not visible"):
        plan_of(text, "partition[0] --tag tiles=tiles")


def test_a_module_without_a_target() -> None:
    with pytest.raises(KprofError, match="GPU"):
        insertion_of(kernel().replace("ttg.target", "target"), "op(tt.store) --tag n=n")


def test_how_tags_are_written() -> None:
    selector = parse_selector("k*/loop[0]=outer  --tag a=%x#1 --tag b_2=y")
    assert selector.tags == (Tag("a", "%x#1"), Tag("b_2", "y"))
    assert (selector.kernel, selector.name, selector.site) == ("k*", "outer", "loop[0]")


@pytest.mark.parametrize(
    ("tags", "column", "case"),
    [
        ("--tag a", 12, "a tag without a value"),
        ("--tag a=b --tag 2=c", 22, "a tag named by a number"),
        ("--tag a=b=c", 12, "a tag of two values"),
        ("--tag a=b --tag a=c", 22, "two tags of one name"),
        (" ".join(f"--tag t{number}=x" for number in range(MAX_TAGS + 1)), 100, "too many tags"),
    ],
)
def test_a_tag_that_is_none(tags: str, column: int, case: str) -> None:
    with pytest.raises(KprofError) as raised:
        parse_selector(f"func {tags}")
    check("select/errors", raised.value.render(), case)
    assert raised.value.where is not None
    assert (raised.value.where.file, raised.value.where.column) == ("--at", column)


def test_a_site_has_the_tags_of_every_selector_that_finds_it() -> None:
    plan = plan_of(read(GROUPED), "loop[0]=all --tag n=n_problems --tag t=tile", "loop --tag t=%c0_i32 --tag z=%c1_i32")
    tags = {scope.record: {tag.name: tag.value for tag in scope.tags} for scope in plan.scopes}
    assert tags["all"] == {"n": "%n_problems", "t": "%tile", "z": "%c1_i32"}
    assert tags["loop[0.0]"] == {"t": "%c0_i32", "z": "%c1_i32"}


def test_the_scope_table_is_read_back() -> None:
    import msgspec

    table = table_json(plan_of(kernel(), "op(tt.store) --tag n=n").table)
    read_back = msgspec.convert(json.loads(json.dumps(table)), ScopeTable)
    assert [(tag.name, tag.record) for tag in read_back.scopes[0].tags] == [("n", "tt.store --tag n")]
    double = {**table, "scopes": [{**table["scopes"][0], "tags": [{"name": "n", "record": "tt.store"}]}]}
    with pytest.raises(msgspec.ValidationError, match="a separate record"):
        msgspec.convert(double, ScopeTable)
