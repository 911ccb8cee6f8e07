"""Names of scope ids: as Proton's own compiler gives them out, or from JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprof_inject.capture.proton_buffer import names_of_ttgir, read_scope_names
from kprof_inject.errors import KprofError

MODULE = """\
module attributes {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", \
"ttg.threads-per-warp" = 32 : i32}} {{
  tt.func public @kernel(%c: i1) attributes {{noinline = false}} {{
{body}
    tt.return
  }}
}}
"""
BODIES = {
    "nested": "+a +b -b -a",
    "crossing": "+a +b -a -b",
    "one name twice": "+a -a +b -b +a -a",
    "end before its start": "-a +a",
    "quoted": r"+q\22\0Ax\\y -q\22\0Ax\\y",
    "in a region": "+a { +b -b +c -c } -a +d -d",
}


def module_of(body: str) -> str:
    lines = {"{": "scf.if %c {", "}": "}"}
    records = [
        lines.get(word) or f'proton.record {"start" if word[0] == "+" else "end"} "{word[1:]}"' for word in body.split()
    ]
    return MODULE.format(body="\n".join(records))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_the_ids_of_a_module_are_those_that_triton_gives(tmp_path: Path, body: str) -> None:
    pytest.importorskip("triton")
    from triton._C.libtriton import proton
    from triton.backends.compiler import GPUTarget

    from kprof_inject.runtime.compiling.instrumentation import read_module

    path = tmp_path / "kernel.ttgir"
    path.write_text(module_of(body))
    module = read_module(str(path), GPUTarget("cuda", 90, 32))
    assert read_scope_names(path) == dict(proton.get_scope_id_names(module))


def test_an_event_takes_an_id_in_the_order_of_the_text() -> None:
    text = module_of("+a -a +b -b").replace(
        'proton.record end "a"', '%e = proton.allocate_event "copy" : i32\nproton.event start %e\nproton.record end "a"'
    )
    assert names_of_ttgir(text, "kernel.ttgir") == {0: "a", 1: "copy", 2: "b"}


def test_ids_of_several_functions_are_not_guessed() -> None:
    text = module_of("+a -a").replace("tt.func public", "tt.func private @helper() {\ntt.return\n}\ntt.func public")
    with pytest.raises(KprofError, match="has several functions"):
        names_of_ttgir(text, "kernel.ttgir")


@pytest.mark.parametrize(
    "text",
    [
        '{"0": "load", "3": "dot"}',
        '{"scope_ids": {"3": "dot", "0": "load"}, "name": "kernel"}',
        '[[0, "load"], [3, "dot"]]',
    ],
)
def test_names_in_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "names.json"
    path.write_text(text)
    assert read_scope_names(path) == {0: "load", 3: "dot"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("3", "names no scope ids"),
        ('{"a": "load"}', "names no scope ids"),
        ('[[0, "load", 1]]', "names no scope ids"),
        ('{"scope_ids": 7}', "names no scope ids"),
        ('{"256": "load"}', "id 256: .* 0 to 255"),
    ],
)
def test_json_that_names_no_ids_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "names.json"
    path.write_text(text)
    with pytest.raises(KprofError, match=message):
        read_scope_names(path)


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ttgir"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(KprofError, match="not a text file"):
        read_scope_names(path)
