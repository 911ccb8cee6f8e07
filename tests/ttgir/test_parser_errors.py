"""What is no TTGIR is refused with a place and a hint, and never with anything but ``KprofError``."""

from __future__ import annotations

import random

import pytest
from durations import assert_linear, cpu_seconds
from golden import fixtures, read

from kprof_inject.errors import KprofError
from kprof_inject.ttgir.parser import parse

CUT_OFF = "the file is truncated; dump it again"
KEEP_ONE = "keep one of them, with its aliases (#blocked, #loc, …); the last is the result of all passes"
GIVE_TTGIR = "give a .ttgir file as Triton writes it (see 'kprof-inject dump')"
NO_BYTE_ORDER_MARK = "the file begins with a byte order mark; save it without one"
TOP_LEVEL = "'{-# … #-}' or an alias definition or an operation or the end of the file"
IN_REGION = "'}' or a block label or an operation"

HEAD = "module {\n  tt.func @k() {\n"


def refusal(text: str) -> KprofError:
    with pytest.raises(KprofError) as caught:
        parse(text, "k.ttgir")
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        (HEAD + "    tt.return\n  }\n", 4, 4),
        (HEAD + "    tt.return\n\n\n", 3, 14),
        (HEAD + "    tt.ret", 3, 11),
        (HEAD, 2, 17),
        ("module {", 1, 9),
        (HEAD + "    scf.if %c {\n    } else {\r\n", 4, 13),
        (HEAD + '    tt.print "}" : i32\n  ^bb1:\n', 4, 8),
    ],
)
def test_a_file_that_is_cut_off(text: str, line: int, column: int) -> None:
    error = refusal(text)

    assert error.what == "the file ends inside a region; expected '}' or a block label or an operation"
    assert str(error.where) == f"k.ttgir:{line}:{column}"
    assert error.hint == CUT_OFF


@pytest.mark.parametrize(
    ("text", "line", "column", "expected"),
    [
        pytest.param("<html>\n", 1, 1, TOP_LEVEL, id="markup"),
        pytest.param("words of a letter\n", 1, 1, TOP_LEVEL, id="prose"),
        pytest.param('{"name": "kernel"}\n', 1, 1, TOP_LEVEL, id="JSON"),
        pytest.param("import triton\n\n@triton.jit\ndef f():\n", 1, 1, TOP_LEVEL, id="Python"),
        pytest.param("\x7fELF\x02\x01\x00\x00", 1, 1, TOP_LEVEL, id="a cubin"),
        pytest.param(HEAD + "    tt.return\n  }\n}\n  }\n", 6, 3, TOP_LEVEL, id="one brace too many"),
        pytest.param(HEAD + '    "tt.return\n', 3, 5, IN_REGION, id="a name without its end"),
        pytest.param(HEAD + "    %0 = 12 : i32\n", 3, 10, "an operation", id="no name behind the results"),
        pytest.param(HEAD + "    scf.if %c {\n  a = 1}\n", 4, 3, IN_REGION, id="attributes broken over lines"),
        pytest.param(HEAD + '    tt.print "a\n', 3, 14, "the rest of the line", id="a string without its end"),
        pytest.param(HEAD + "    #a = 1\n", 3, 5, IN_REGION, id="an alias in a region"),
        pytest.param('#loc = loc("a\n' + HEAD, 1, 12, "the rest of the line", id="an alias without its end"),
        pytest.param("^bb0:\n" + HEAD, 1, 1, TOP_LEVEL, id="a label outside a region"),
    ],
)
def test_a_text_that_is_no_ttgir(text: str, line: int, column: int, expected: str) -> None:
    error = refusal(text)

    assert error.what.startswith("this is not TTGIR as Triton prints it; expected ")
    assert error.what.endswith(expected)
    assert str(error.where) == f"k.ttgir:{line}:{column}"
    assert error.hint == GIVE_TTGIR


def test_a_byte_order_mark() -> None:
    error = refusal("\ufeff" + HEAD)

    assert str(error.where) == "k.ttgir:1:1"
    assert error.hint == NO_BYTE_ORDER_MARK


@pytest.mark.parametrize("text", ["", "\n", "// nothing\n", "module {\n}\n", "module attributes {} {\n}"])
def test_a_file_without_a_function(text: str) -> None:
    error = refusal(text)

    assert error.what == "there is no tt.func in this file"
    assert str(error.where) == "k.ttgir:1:1"
    assert error.hint == GIVE_TTGIR


def test_the_diagnostic_as_it_is_printed() -> None:
    assert refusal(HEAD + "    tt.return\n  }\n\t;\n").render().splitlines() == [
        "k.ttgir:5:2: error: this is not TTGIR as Triton prints it; expected '}' or a block label or an operation",
        "  \t;",
        "  \t^",
        f"hint: {GIVE_TTGIR}",
    ]


def nested(depth: int) -> str:
    return HEAD + depth * "scf.if %c {\n" + depth * "}\n" + "tt.return\n}\n}\n"


def test_operations_nested_500_deep() -> None:
    assert sum(operation.name == "scf.if" for operation in parse(nested(500)).walk()) == 500


def test_operations_nested_20000_deep() -> None:
    error = refusal(nested(20_000))

    assert error.what == "operations are nested more than 600 deep"
    assert str(error.where) == "k.ttgir:601:1"


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

    def parse_or_refuse(text: str) -> None:
        nonlocal refused
        try:
            assert parse(text, "k.ttgir").text == text
        except KprofError as error:
            refused += 1
            check_place(error, text)
            assert error.hint in (CUT_OFF, GIVE_TTGIR, KEEP_ONE)

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

    assert error.what.startswith("this file holds 2 modules, which begin on lines ")
    assert str(error.where) == f"k.ttgir:{line}:{column}"
    assert error.hint == KEEP_ONE
