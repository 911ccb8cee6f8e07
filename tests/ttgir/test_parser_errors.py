"""What is no TTGIR is refused with a place and a hint, and never with anything but ``KprofError``."""

from __future__ import annotations

import random

import pytest
from durations import assert_linear, cpu_seconds
from golden import fixtures, read
from snapshots import check_cases

from kprof_inject.errors import KprofError, printable_lines
from kprof_inject.ttgir.parser import parse

HEAD = "module {\n  tt.func @k() {\n"


def refusal(text: str) -> KprofError:
    with pytest.raises(KprofError) as caught:
        parse(text, "k.ttgir")
    return caught.value


CUT_OFF = [
    (HEAD + "    tt.return\n  }\n", 4, 4),
    (HEAD + "    tt.return\n\n\n", 3, 14),
    (HEAD + "    tt.ret", 3, 11),
    (HEAD, 2, 17),
    ("module {", 1, 9),
    (HEAD + "    scf.if %c {\n    } else {\r\n", 4, 13),
    (HEAD + '    tt.print "}" : i32\n  ^bb1:\n', 4, 8),
]


@pytest.mark.parametrize(("text", "line", "column"), CUT_OFF)
def test_a_file_that_is_cut_off(text: str, line: int, column: int) -> None:
    error = refusal(text)

    assert str(error.where) == f"k.ttgir:{line}:{column}"
    assert "truncated" in error.hint


# By what it is: the text, and where it stops being TTGIR.
NO_TTGIR: dict[str, tuple[str, int, int]] = {
    "markup": ("<html>\n", 1, 1),
    "prose": ("words of a letter\n", 1, 1),
    "JSON": ('{"name": "kernel"}\n', 1, 1),
    "Python": ("import triton\n\n@triton.jit\ndef f():\n", 1, 1),
    "a cubin": ("\x7fELF\x02\x01\x00\x00", 1, 1),
    "one brace too many": (HEAD + "    tt.return\n  }\n}\n  }\n", 6, 3),
    "a name without its end": (HEAD + '    "tt.return\n', 3, 5),
    "no name behind the results": (HEAD + "    %0 = 12 : i32\n", 3, 10),
    "attributes broken over lines": (HEAD + "    scf.if %c {\n  a = 1}\n", 4, 3),
    "a string without its end": (HEAD + '    tt.print "a\n', 3, 14),
    "an alias in a region": (HEAD + "    #a = 1\n", 3, 5),
    "an alias without its end": ('#loc = loc("a\n' + HEAD, 1, 12),
    "a label outside a region": ("^bb0:\n" + HEAD, 1, 1),
    "a byte order mark": ("\ufeff" + HEAD, 1, 1),
}


@pytest.mark.parametrize(("text", "line", "column"), NO_TTGIR.values(), ids=NO_TTGIR)
def test_a_text_that_is_no_ttgir(text: str, line: int, column: int) -> None:
    assert str(refusal(text).where) == f"k.ttgir:{line}:{column}"


def test_what_is_said_of_such_texts() -> None:
    said = {case: printable_lines(refusal(text).render()) for case, (text, *_) in NO_TTGIR.items()}
    said["cut off"] = "\n".join(refusal(text).render() for text, *_ in CUT_OFF)
    said["behind tabs"] = refusal(HEAD + "    tt.return\n  }\n\t;\n").render()
    said["without a function"] = refusal(NO_FUNCTION[0]).render()
    said["nested too deep"] = refusal(nested(20_000)).render()
    said["several kernels"] = refusal(f"{MODULE}module {{\n}}\n{MODULE}").render()
    check_cases("ttgir/errors", said)


NO_FUNCTION = ["", "\n", "// nothing\n", "module {\n}\n", "module attributes {} {\n}"]


@pytest.mark.parametrize("text", NO_FUNCTION)
def test_a_file_without_a_function(text: str) -> None:
    error = refusal(text)

    assert (error.what, error.hint) == (refusal("").what, refusal("").hint)
    assert str(error.where) == "k.ttgir:1:1"


def nested(depth: int) -> str:
    return HEAD + depth * "scf.if %c {\n" + depth * "}\n" + "tt.return\n}\n}\n"


def test_operations_nested_500_deep() -> None:
    assert sum(operation.name == "scf.if" for operation in parse(nested(500)).walk()) == 500


def test_operations_nested_20000_deep() -> None:
    assert str(refusal(nested(20_000)).where) == "k.ttgir:601:1"


@pytest.mark.parametrize(
    "piece", ["{ /", "{\n", '"', '\\"', "(", ",\n", "%a = ", "//\n", "x.y //\n) ", "^bb0:", "{-#", "#a = 1\n", "x.y\n"]
)
def test_a_piece_over_and_over_is_refused_in_linear_time(piece: str) -> None:
    assert_linear(lambda count: refusal("module {" + count * piece))


def test_many_comments_in_an_operation_take_linear_time() -> None:
    assert_linear(
        lambda count: parse("module {\n  tt.func @k() {\n    x.y" + count * " // {\n" + ": () -> ()\n  }\n}\n")
    )


def test_damaged_fixtures_parse_or_are_refused_at_a_place() -> None:
    chance = random.Random(20)
    texts = [read(path) for path in fixtures()]
    refused = 0
    hints = {refusal(text).hint for text in ("", HEAD, MODULE + MODULE)}

    def parse_or_refuse(text: str) -> None:
        nonlocal refused
        try:
            assert parse(text, "k.ttgir").text == text
        except KprofError as error:
            refused += 1
            check_place(error, text)
            assert error.hint in hints or "begin" in error.hint  # a line, where modules begin

    for _ in range(300):
        text = damaged(chance.choice(texts), chance)
        assert cpu_seconds(lambda text=text: parse_or_refuse(text)) < 1
    assert 30 < refused < 270  # both ways out were taken


def damaged(text: str, chance: random.Random) -> str:
    """The text with three stretches of lines or of characters left out or doubled."""
    for _ in range(3):
        pieces = text.splitlines(keepends=True) if chance.random() < 0.5 else list(text)
        if not pieces:
            return text
        first = chance.randrange(len(pieces))
        last = first + chance.choice((1, 3, 10, 50))
        times = chance.choice((0, 2))
        text = "".join(pieces[:first] + times * pieces[first:last] + pieces[last:])
    return text


def check_place(error: KprofError, text: str) -> None:
    assert error.where is not None
    lines = text.split("\n")
    assert error.where.text == lines[error.where.line - 1]
    assert 1 <= error.where.column <= len(error.where.text) + 1


MODULE = HEAD + "    tt.return\n  }\n}\n"

DIAGNOSTICS = "k.py:9:5: remark: vectorized\n  x = tl.load(p)\n      ^\n"
ALIASES = "#blocked = #ttg.blocked<{}>\n#loc = loc(unknown)\n"


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (DIAGNOSTICS + MODULE, "a module begins on line 4; "),
        (DIAGNOSTICS + ALIASES + MODULE + DIAGNOSTICS, "a module begins on line 4; "),
        (ALIASES + MODULE + '#loc1 = loc("k.py":1:1)\n' + DIAGNOSTICS, "a module begins on line 1; "),
        (
            'warning: "builtin.module" {\n' + MODULE.replace("module", '"builtin.module"() ({', 1),
            "a module begins on line 2; ",
        ),
        (DIAGNOSTICS + MODULE + DIAGNOSTICS + ALIASES + MODULE, "modules begin on lines 4, 12; "),
        (DIAGNOSTICS, "give a .ttgir file"),
        (DIAGNOSTICS + HEAD + "    12\n", "a module begins on line 4; "),
        (HEAD + "    12\n", "give a .ttgir file"),
    ],
    ids=["before", "around", "after", "generic", "several", "none", "cut off", "inside"],
)
def test_what_a_console_shows_around_a_module(text: str, begins: str) -> None:
    assert refusal(text).hint.startswith(begins)


def test_the_place_of_modules_is_found_in_linear_time() -> None:
    aliases = "#loc = loc(unknown)\n"
    assert_linear(lambda count: refusal(DIAGNOSTICS + count * aliases + count * "module {\n" + count * aliases))


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        (f"// -----// IR Dump After A //----- //\n{MODULE}// -----// IR Dump After B //----- //\n{MODULE}", 8, 1),
        (f"{MODULE}module {{\n}}\n{MODULE}", 8, 1),
        (f"{MODULE}{HEAD.removeprefix('module {')}    tt.return\n  }}\n", 7, 3),
    ],
    ids=["dump", "empty between", "function behind"],
)
def test_several_kernels_in_one_file(text: str, line: int, column: int) -> None:
    error = refusal(text)

    assert " 2 modules" in error.what
    assert str(error.where) == f"k.ttgir:{line}:{column}"
