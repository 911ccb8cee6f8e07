"""Triton's own parser judges ours: the same operations, visible values, and what inserting and stripping write."""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import NEWEST, fixture_id, kernel_of, our_tree, read
from planning import view_of_text
from rewriting import computing_lines, inserted_lines, is_record, some_plans_of, view
from shared_lines import BESIDE_OPERATIONS, DENSE, SELECTIONS, WITHOUT_RECORDS
from shared_lines import kernel_of as kernel_with
from triton_oracle import installed_fixtures, libtriton, one_of_each_kernel, parse_with_triton, triton, triton_tree
from ttgir_forms import FORMS, Form

from kprof_inject.rewrite import apply, strip
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.dialect import is_listed
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.scalars import scalars_at

pytestmark = pytest.mark.triton

INSTALLED = installed_fixtures()
TARGETS = {"cuda-80", "cuda-90", "cuda-100", "hip-gfx942", "hip-gfx950"}


def test_the_installed_triton_has_fixtures_of_every_target() -> None:
    assert {path.parent.name for path in INSTALLED} == TARGETS


@pytest.mark.parametrize("path", INSTALLED, ids=fixture_id)
def test_a_fixture(path: Path) -> None:
    assert our_tree(parse(read(path))) == triton_tree(path)


@pytest.mark.parametrize("path", one_of_each_kernel(), ids=fixture_id)
def test_a_fixture_printed_without_locations(path: Path) -> None:
    bare = parse_with_triton(path).str_nodebug()
    assert "loc(#loc" not in bare
    assert our_tree(parse(bare)) == triton_tree(path)


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("form", FORMS.values(), ids=repr)
def test_a_hand_written_form(form: Form, newline: str, tmp_path: Path) -> None:
    text = form.text.replace("\n", newline)
    path = tmp_path / "form.ttgir"
    path.write_text(text, newline="")
    assert our_tree(parse(text)) == triton_tree(path)


# Triton's own parser judges the values that are visible at a place, and their types

# With loops of both kinds, branches, partitions, tokens, inlined functions; in each form.
KERNELS = {"softmax", "grouped_gemm", "while_if", "early_return", "ws_matmul", "noinline_helper"}
JUDGED = [path for path in one_of_each_kernel() if kernel_of(path) in KERNELS]
INTEGER = re.compile(r"i\d+|index")


def with_users(module: Module) -> Iterator[str]:
    """The text, and before each operation of Triton's one that uses all integers that are said to be visible there."""
    done = 0
    for number, user in enumerate(module.walk()):
        line = module.line_start(user.start)
        alone = not module.text[line : user.start].strip()
        if not alone or not user.name.startswith("tt.") or any(not one.traits.regions for one in user.owners()):
            continue
        yield module.text[done:line]
        done = line
        for place, one in enumerate(scalars_at(module, user)):
            if INTEGER.fullmatch(one.type):
                result = f"%user.{number}.{place}"
                yield f'{result} = "arith.ori"({one.name}, {one.name}) : ({one.type}, {one.type}) -> {one.type}\n'
    yield module.text[done:]


@pytest.mark.parametrize("path", JUDGED, ids=fixture_id)
def test_triton_sees_the_same_values(path: Path, tmp_path: Path) -> None:
    module = parse(read(path))
    text = "".join(with_users(module))
    assert text.count("%user.") > text.count("tt.func")
    used = tmp_path / "used.ttgir"
    used.write_text(text)
    parse_with_triton(used)


# Triton's own parser judges what inserting and stripping write

NUMBERS = re.compile(r"%\d+")


@pytest.mark.parametrize("path", one_of_each_kernel(), ids=fixture_id)
def test_triton_sees_the_plans_records_and_nothing_else_new(path: Path, tmp_path: Path) -> None:
    before = operations(path)
    for number, plan in enumerate(some_plans_of(path)):
        instrumented = tmp_path / f"{number}.ttgir"
        instrumented.write_bytes(apply(view(path).module, plan).encode())
        inserted = Counter(line.split(" = ")[1].split()[0] for line in computing_lines(plan))
        assert operations(instrumented) == before + inserted + Counter({"proton.record": len(plan.records)})


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
    path.write_text(strip(parse(kernel_with(records))))
    parse_with_triton(path)


# Every operation that Triton registers is in our table of them

# Lowering alone uses the others that Triton loads: llvm, nvvm, rocdl, gpu, nvgpu, amdgpu, nvg and proton_gpu.
_DIALECTS = "amdg arith cf gluon index math nvws proton scf tt ttg tti ttng ub"


@pytest.mark.skipif(triton.__version__ != NEWEST, reason="needs the newest Triton")
def test_every_registered_operation_is_in_a_table(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    registered = [name for name in _names_in_binary() if _is_registered(name, tmp_path / "one.mlir", capfd)]
    assert len(registered) > 250 and {"ttng.clc_try_cancel", "amdg.async_tdm_wait", "scf.for"} <= {*registered}
    unknown = [name for name in registered if not is_listed(name)]
    assert unknown == [], "put them into kprof_inject/ttgir/dialect.py: under their traits, or into _PLAIN"


def _names_in_binary() -> Iterator[str]:
    """Yield all strings of libtriton's read-only data that may be an operation's name."""
    form = re.compile(rb"\0((?:%s)\.[a-z][a-z0-9_.]*)(?=\0)" % _DIALECTS.replace(" ", "|").encode())
    with open(libtriton.__file__, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as binary:
        # ELF-64: where the section headers are, how long each is, how many there are.
        (first,) = struct.unpack_from("<Q", binary, 0x28)
        size, count = struct.unpack_from("<HH", binary, 0x3A)
        for number in range(count):
            _, kind, flags, _, start, length = struct.unpack_from("<IIQQQQ", binary, first + number * size)
            if kind == _PROGBITS and flags & _ALLOCATED and not flags & (_WRITABLE | _EXECUTABLE):
                yield from sorted({name.decode() for name in form.findall(binary[start : start + length])})


_PROGBITS, _WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 1, 2, 4


def _is_registered(name: str, path: Path, capfd: pytest.CaptureFixture[str]) -> bool:
    path.write_text(f'"{name}"() : () -> ()\n')
    try:
        parse_with_triton(path)
    except RuntimeError:
        return "unregistered operation" not in capfd.readouterr().err
    return True
