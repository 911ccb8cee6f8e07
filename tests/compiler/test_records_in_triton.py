"""Triton's own parser judges what inserting and stripping write."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from golden import fixture_id, our_tree
from planning import view_of_text
from rewriting import computing_lines, inserted_lines, is_record, some_plans_of, view
from shared_lines import BESIDE_OPERATIONS, DENSE, SELECTIONS, WITHOUT_RECORDS, kernel_of
from triton_oracle import one_of_each_kernel, parse_with_triton, triton_tree

from kprof_inject.rewrite import apply, strip
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.parser import parse

NUMBERS = re.compile(r"%\d+")


@pytest.mark.triton
@pytest.mark.parametrize("path", one_of_each_kernel(), ids=fixture_id)
def test_triton_sees_the_plans_records_and_nothing_else_new(path: Path, tmp_path: Path) -> None:
    before = operations(path)
    for number, plan in enumerate(some_plans_of(path)):
        instrumented = tmp_path / f"{number}.ttgir"
        instrumented.write_bytes(apply(view(path).module, plan).encode())

        inserted = Counter(line.split(" = ")[1].split()[0] for line in computing_lines(plan))
        assert operations(instrumented) == before + inserted + Counter({"proton.record": len(plan.records)})


@pytest.mark.triton
@pytest.mark.parametrize("path", one_of_each_kernel(), ids=fixture_id)
def test_records_that_triton_printed_are_stripped(path: Path, tmp_path: Path) -> None:
    plan = make_plan(view(path), parse_selectors(["func", "loop", "iter"]))
    instrumented = tmp_path / "instrumented.ttgir"
    instrumented.write_bytes(apply(view(path).module, plan).encode())

    text = printed(instrumented)
    assert Counter(line.strip() for line in text.splitlines() if is_record(line)) == Counter(
        line.strip() for line in inserted_lines(plan, "\n") if "proton" in line
    )
    # Triton numbers the values, also those of tags.
    assert NUMBERS.sub("%", strip(parse(text))) == NUMBERS.sub("%", printed(path))


def operations(path: Path) -> Counter[str]:
    """Count each operation that Triton's parser sees."""
    names: Counter[str] = Counter()
    parse_with_triton(path).walk(lambda operation: names.update([operation.get_name()]))
    return names


def printed(path: Path) -> str:
    """The file as Triton prints it. It goes without locations, whose numbers a record may change."""
    return str(parse_with_triton(path).str_nodebug())


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("text", [WITHOUT_RECORDS, DENSE], ids=["blanks", "no blanks"])
def test_records_between_operations_of_one_line_are_read_alike(text: str, newline: str, tmp_path: Path) -> None:
    view = view_of_text(text.replace("\n", newline))
    path = tmp_path / "kernel.ttgir"
    for selectors in SELECTIONS:
        instrumented = apply(view.module, make_plan(view, parse_selectors(selectors)))
        path.write_bytes(instrumented.encode())

        assert our_tree(parse(instrumented)) == triton_tree(path)


@pytest.mark.parametrize("records", [records for records, _ in BESIDE_OPERATIONS])
def test_triton_reads_what_stripping_leaves_beside_operations(records: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel.ttgir"
    path.write_text(strip(parse(kernel_of(records))))

    parse_with_triton(path)
