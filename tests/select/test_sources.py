"""Function names by source line, whatever the text is."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kprof_inject.errors import KprofError
from kprof_inject.select.markers import markers_in
from kprof_inject.select.python_source import SourceFunction, Sources

TEXT = '''\
import triton

@triton.autotune(
    configs=[],
)
@triton.jit
def kernel(
    x_ptr,
):
    """Adds."""

    def inner(a): return a
    @other
    def decorated():
        pass
    x = lambda y: (
        y
    )

class Group:
    size = 1

    async def method(self):
        if self:
            def deep():
                return """
def not_this(): pass
"""
        return 1
'''


EXPECTED = [
    *[""] * 2,
    *["kernel"] * 9,
    "inner",
    *["decorated"] * 3,
    *["kernel"] * 3,
    *[""] * 4,
    *["method"] * 2,
    *["deep"] * 4,
    "method",
    *[""] * 2,
]


def names(text: str, line_count: int) -> list[str]:
    """The function's name at each line from 1 on."""
    sources = Sources({"k.py": text})
    found = (sources.function_at("k.py", line) for line in range(1, line_count + 1))
    return [function.name if function else "" for function in found]


def test_the_innermost_function_of_each_line() -> None:
    assert names(TEXT, len(EXPECTED)) == EXPECTED


def test_a_functions_lines() -> None:
    function = SourceFunction("kernel", "a/k.py", first_line=3, def_line=7, last_line=18)

    assert Sources({"a/k.py": TEXT}).function_at("a/k.py", 3) == function


def test_lines_outside_of_the_file_have_no_function() -> None:
    sources = Sources({"k.py": "def k():\n    pass"})

    assert [sources.function_at("k.py", line) is None for line in (-1, 0, 1, 2, 3)] == [True, True, False, False, True]


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("\n", "\r"),
        "\ufeff" + TEXT,
        TEXT.rstrip("\n"),
        TEXT.replace("    ", "\t"),
        TEXT.replace("Adds.", "größer \u2028 \x0b \x0c \x1c"),
        TEXT.replace("\nclass", "\x0c\nclass"),
        TEXT.replace("class", "\x0cclass"),
        TEXT.replace("Adds.", r"\d"),
    ],
    ids=["CRLF", "CR", "BOM", "no final newline", "tabs", "odd characters", "form feed", "form feed in line", "escape"],
)
def test_the_same_text_written_otherwise(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names(text, len(EXPECTED)) == EXPECTED


UNREADABLE = [
    "def k():",
    "def k():\n    x = (",
    "def k():\n\tx\n        y",
    "def k():\n    '''",
    "def k(): pass\n\0",
    "def k(): '\ud800'",
    "module {\n}",
    "def k(): " + "(" * 5000,
    "def k(): " + "-" * 50_000 + "1",
    "def k(): x" + ".x" * 100_000,
]


@pytest.mark.parametrize("text", ["", "\n", "# only this", "\ufeff", *UNREADABLE], ids=lambda text: repr(text)[:25])
def test_a_text_without_functions_or_that_cannot_be_parsed(text: str) -> None:
    assert set(names(text, 5)) == {""}


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: repr(text)[:25])
def test_markers_in_a_text_that_cannot_be_parsed(text: str) -> None:
    assert markers_in(Sources({"k.py": f"# no kprof: mark\n{text}"}), "k.py") == ()
    with pytest.raises(KprofError, match=r"^cannot read .* comments: .") as caught:
        markers_in(Sources({"k.py": f"# kprof: mark a\n{text}"}), "k.py")
    assert caught.value.where is not None
    assert caught.value.where.column >= 1


def test_a_long_chain_of_branches() -> None:
    text = "def k(x):\n    if x == 0: pass\n" + "".join(f"    elif x == {i}: pass\n" for i in range(900))

    assert names(text, 904) == [*["k"] * 902, "", ""]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_garbled_text_is_a_diagnostic_at_worst(data: st.DataObject) -> None:
    text = TEXT + "    for i in x:  # kprof: loop\n        # kprof: begin a\n        i\n        # kprof: end; mark b\n"
    for _ in range(data.draw(st.integers(0, 3))):
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        middle = data.draw(
            st.sampled_from(
                ["", text[start:stop] * 2, "\n", "\r", "\t", "\f", "\\\n", "'''", "(", ":", "\0", "# kprof: ", "ä"]
            )
        )
        text = text[:start] + middle + text[min(stop, start + 40) :]
    sources = Sources({"k.py": text})
    for line in range(text.count("\n") + 2):
        sources.function_at("k.py", line)
    try:
        markers_in(sources, "k.py")
    except KprofError as error:
        assert error.where is not None
        assert error.where.text in text
        assert error.where.column >= 1
