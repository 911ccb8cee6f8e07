"""Marker comments: where each form stands, which lines it means, and where a wrong one goes wrong."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshots import check

from kprof_inject.errors import KprofError, printable_lines
from kprof_inject.select.markers import INSTANT, ITERATION, LOOP, STATEMENTS, Marker, markers_in
from kprof_inject.select.python_source import Sources


def found(text: str) -> tuple[Marker, ...]:
    return markers_in(Sources({"k.py": text}), "k.py")


def brief(marker: Marker) -> str:
    where = f"{marker.function.name}:{marker.line}"
    if marker.kind in (LOOP, ITERATION):
        return f"{where} {'loop' if marker.kind == LOOP else 'iter'} {marker.name} {marker.loop_line}"
    (first, last), *_ = marker.statements
    side = {STATEMENTS: "", INSTANT: "before " if marker.is_before else "after "}[marker.kind]
    return f"{where} {marker.name} {side}{first}-{last}"


def marked(body: str) -> list[str]:
    """The markers of ``def k():`` with this body, which begins on line 2 without indentation."""
    lines = [f"    {line}" if line.strip() else line for line in body.strip("\n").split("\n")]
    return [brief(marker).removeprefix("k:") for marker in found("\n".join(["def k():", *lines, ""]))]


def test_all_forms() -> None:
    text = """\
@triton.jit
def kernel(p, n):
    # kprof: begin load
    x = tl.load(p)
    y = tl.load(p + 1)
    # kprof: end load
    z = tl.dot(x, y)  # kprof: dot
    for k in range(n):  # kprof: loop main; iter
        z += k
    # kprof: mark before_store
    tl.store(p, z)
"""
    sources = Sources({"/a/k.py": text})
    function = sources.function_at("/a/k.py", 2)
    assert function is not None

    assert markers_in(sources, "/a/k.py") == (
        Marker(STATEMENTS, "load", "/a/k.py", 3, function, statements=((4, 5),)),
        Marker(STATEMENTS, "dot", "/a/k.py", 7, function, statements=((7, 7),)),
        Marker(LOOP, "main", "/a/k.py", 8, function, loop_line=8),
        Marker(ITERATION, "iter", "/a/k.py", 8, function, loop_line=8),
        Marker(INSTANT, "before_store", "/a/k.py", 10, function, statements=((11, 11),), is_before=True),
    )


@pytest.mark.parametrize(
    "line",
    [
        "'# kprof: begin x'",
        "x = '''\n# kprof: begin x\n'''",
        "x  # see kprof: begin",
        "x  # see # kprof: begin",
        "x\n# # kprof: begin x",
        "x  # kprof marks are ignored here",
        "x\n# Kprof: load",
        "x\n# kprof, begin load",
        "x = '# kprof begin load'",
        "x  # mykprof: begin x",
    ],
)
def test_what_is_no_marker(line: str) -> None:
    assert marked(line) == []


def test_an_unknown_file_has_no_markers() -> None:
    assert markers_in(Sources({}), "k.py") == ()


def test_a_file_that_says_nothing_of_markers_is_not_parsed() -> None:
    class Unparsed(Sources):
        def parsed(self, file: str) -> None:  # type: ignore[override]
            raise AssertionError

    assert markers_in(Unparsed({"k.py": "def k(): pass  # kprof"}), "k.py") == ()


@pytest.mark.parametrize(
    "comment",
    [
        "# kprof begin load",
        "#kprof end",
        "# kprof : mark here",
        "# Kprof: loop main",
        "#\tKprof\tend\tload\t",
    ],
)
@pytest.mark.parametrize(
    ("text", "at"), [("def k():\n  x  COMMENT", "2:6"), ("def k():\n  COMMENT\n  x", "2:3"), ("COMMENT", "1:1")]
)
def test_what_looks_like_a_marker_and_is_none(text: str, at: str, comment: str) -> None:
    error = refusal(text.replace("COMMENT", comment))

    assert "looks like a marker" in error.what
    assert "# kprof:" in error.hint
    assert str(error.where) == f"k.py:{at}"


def test_what_looks_like_a_marker_in_a_file_that_cannot_be_read() -> None:
    assert found("def k():\n  # kprof begin load\n  x = = 1\n") == ()


@pytest.mark.parametrize(
    "comment",
    [
        "#kprof:begin a;mark b",
        "# kprof: begin a; mark b",
        "#  kprof:   begin  a  ;;  mark  b;",
        "# kprof: begin a; mark b # kprof: c",
        "# kprof: begin a; mark b  # type: ignore; see below",
    ],
)
def test_spacing_is_free(comment: str) -> None:
    assert marked(f"{comment}\nx\n#kprof:end") == ["2 a 3-3", "2 b before 3-3"]


@pytest.mark.parametrize("name", ["a", "load_x", "µs→", "a.b-c/d:1", "begin2", "0", "a,b", "{x}"])
def test_names(name: str) -> None:
    assert marked(f"x  # kprof: {name}") == [f"2 {name} 2-2"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # Simple statements.
        ("x  # kprof: a", ["2 a 2-2"]),
        ("x  # kprof: a; b", ["2 a 2-2", "2 b 2-2"]),
        ("f(  # kprof: a\n1,\n)", ["2 a 2-4"]),
        ("f(\n1,  # kprof: a\n)", ["3 a 2-4"]),
        ("f(\n1\n)  # kprof: a", ["4 a 2-4"]),
        ("x = '''\n\n'''  # kprof: a", ["4 a 2-4"]),
        ("x = \\\n1  # kprof: a", ["3 a 2-3"]),
        ("x = 1 \\\n  # kprof: a", ["3 a 2-2"]),
        ("x = lambda: (\n1  # kprof: a\n)", ["3 a 2-4"]),
        ("x; y  # kprof: a", ["2 a 2-2"]),
        ("x; f(\n1); y  # kprof: a\nz", ["3 a 2-3"]),
        ("f(\n1); g(  # kprof: a\n2)", ["3 a 2-4"]),
        ("ä = 'ö'; é = 'ü'  # kprof: a", ["2 a 2-2"]),
        # Compound statements.
        ("if x:  # kprof: a\n  y\nelse:\n  z\nu", ["2 a 2-5"]),
        ("if (x and  # kprof: a\n    y):\n  z", ["2 a 2-4"]),
        ("if x:\n  y\nelif z:  # kprof: a\n  u\nelse:\n  v", ["4 a 4-7"]),
        ("if x: y\nelse: z  # kprof: a", ["3 a 3-3"]),
        ("for i in x:  # kprof: a\n  y", ["2 a 2-3"]),
        ("with x as (\n  y, z  # kprof: a\n):\n  u", ["3 a 2-5"]),
        ("with x: y; z  # kprof: a", ["2 a 2-2"]),
        ("match x:  # kprof: a\n  case 1:\n    y", ["2 a 2-4"]),
        ("match x:\n  case 1: y  # kprof: a", ["3 a 3-3"]),
    ],
)
def test_a_statement(body: str, expected: list[str]) -> None:
    assert marked(body) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def k():  # kprof: a\n  x\ny", ["k:1 a 1-2"]),
        ("@d  # kprof: a\n@e\ndef k():\n  x", ["k:1 a 1-4"]),
        ("@d\n@e(\n  1  # kprof: a\n)\ndef k(): x", ["k:3 a 1-5"]),
        ("@d\ndef k(  # kprof: a\n):\n  x", ["k:2 a 1-4"]),
        ("def k(): x; y  # kprof: a", ["k:1 a 1-1"]),
        ("def k():\n  class A:  # kprof: a\n    x  # kprof: b", ["k:2 a 2-3", "k:3 b 3-3"]),
    ],
)
def test_a_function_is_a_statement_too(text: str, expected: list[str]) -> None:
    assert [brief(marker) for marker in found(text)] == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for i in x:  # kprof: loop a\n  y", ["2 loop a 2"]),
        ("while x:  # kprof: iter a\n  y", ["2 iter a 2"]),
        ("for i in x: y  # kprof: loop", ["2 loop loop 2"]),
        ("for i in f(  # kprof: loop a\n  1):\n  y", ["2 loop a 2"]),
        ("for i in f(\n  1,  # kprof: iter\n):  # kprof: loop b; c\n  y", ["3 iter iter 2", "4 loop b 2", "4 c 2-5"]),
        ("while \\\n    x:  # kprof: loop a\n  y", ["3 loop a 2"]),
        ("for i in x:\n  for j in i:  # kprof: loop a\n    y\nelse:\n  z", ["3 loop a 3"]),
    ],
)
def test_a_loop(body: str, expected: list[str]) -> None:
    assert marked(body) == expected


def test_an_asynchronous_function() -> None:
    text = """\
async def k():
    async for i in x:  # kprof: loop a
        # kprof: mark b
        async with y:
            # kprof: begin c
            await z
            # kprof: end c
"""
    assert [brief(marker) for marker in found(text)] == ["k:2 loop a 2", "k:3 b before 4-6", "k:5 c 6-6"]


# Where a mark is put tells which place a comment's line has: before or after which statement.
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("MARK\nx", "before 3-3"),
        ("x\nMARK", "after 2-2"),
        ("x\nMARK\n\n\nf(\n)", "before 6-7"),
        ("x\n        MARK\ny", "before 4-4"),
        ("x = 1, \\\n2\nMARK", "after 2-3"),
        ("'''doc'''\nMARK\nx", "before 4-4"),
        ("MARK\n'''doc'''\npass\n...\nx", "before 6-6"),
        ("x\nMARK\npass", "after 2-2"),
        ("MARK\nfor i in x:\n  y\nelse:\n  z", "before 3-6"),
        ("MARK\n@d\n@e\ndef f():\n  y", "before 3-6"),
        ("@d\nMARK\ndef f():\n  y", "before 2-5"),
        # At the top of a suite.
        ("for i in x:\n  MARK\n  y", "before 4-4"),
        ("for i in x:\n  y\n MARK\n  z", "before 5-5"),
        ("if x:\n  y\nelse:\n  MARK\n  z", "before 6-6"),
        ("try:\n  MARK\n  x\nexcept E:\n  y", "before 4-4"),
        ("try:\n  x\nexcept* E:\n  y\nelse:\n  MARK\n  z\nfinally:\n  u", "before 8-8"),
        ("with x, \\\n    y:\n  MARK\n  z", "before 5-5"),
        ("match x:\n  case 1:\n    y\n  case 2 | \\\n    3:\n    MARK\n    z", "before 8-8"),
        ("match x:\n  MARK\n  case 1:\n    y", "before 2-5"),
        # At the end of a suite that others follow.
        ("if x:\n  y\n  MARK\nelse:\n  z", "after 3-3"),
        ("if x:\n  y\nMARK\nelse:\n  z", "after 3-3"),
        ("if x: y\nMARK\nelse: z", "after 2-2"),
        ("try:\n  x\n  MARK\nfinally:\n  y", "after 3-3"),
        ("match x:\n  case 1:\n    y\n    MARK\n  case 2:\n    z", "after 4-4"),
        ("if x:\n  for i in y:\n    z\n    MARK\nelse:\n  u", "after 4-4"),
        # Behind a compound statement.
        ("for i in x:\n  y\nMARK", "after 2-3"),
        ("for i in x:\n  y\n MARK\nz", "after 3-3"),
        ("for i in x:\n  y\n\n\nMARK\nz", "before 7-7"),
        ("for i in x:\n  y\n\n\n  MARK\nz", "after 3-3"),
        ("for i in x:\n  if i:\n    y\n  MARK\nz", "after 3-4"),
        ("for i in x:\n  if i:\n    y\n  else: z\n    MARK\nu", "after 3-5"),
        ("for i in x:\n  if i: y\n    MARK", "after 3-3"),
        ("for i in x:\n  y\nelse:\n  z\n  MARK", "after 5-5"),
        ("if x: y\nMARK", "after 2-2"),
        ("if x: f(\n1)\n    MARK", "after 2-3"),
        ("if x:\n  y\nelse: \\\n  z\n  MARK", "after 2-5"),
        ("try:\n  x\nexcept E:\n  y\nMARK", "after 2-5"),
        ("match x:\n  case 1:\n    y\n    MARK", "after 4-4"),
        # Tabs count to the next multiple of eight.
        ("if x:\n\ty\n\tMARK\nz", "after 3-3"),
        ("if x:\n\ty\n    MARK\nz", "after 3-3"),
        ("if x:\n  \ty\n\tMARK\nz", "after 3-3"),
    ],
)
def test_where_a_comment_stands(body: str, expected: str) -> None:
    ((_, name, place),) = (marker.split(maxsplit=2) for marker in marked(body.replace("MARK", "# kprof: mark m")))

    assert (name, place) == ("m", expected)


@pytest.mark.parametrize(
    ("body", "statements", "is_before", "loop"),
    [
        ("MARK\nx\ny = [\n]\npass\nz", ((3, 3), (4, 5), (7, 7)), True, 0),
        ("x\ny\nMARK", ((3, 3), (2, 2)), False, 0),
        ("for i in x:\n  y\n  MARK\n  z\nu", ((5, 5),), True, 2),
        ("for i in x:\n  while y:\n    z\n    u\n    MARK", ((5, 5), (4, 4)), False, 3),
        ("for i in x:\n  if y:\n    MARK\n    z\n    u\n  v", ((5, 5), (6, 6)), True, 2),
        ("for i in x:\n  y\nelse:\n  MARK\n  z", ((6, 6),), True, 0),
        ("while x:\n  for i in y:\n    z\n  else:\n    MARK\n    u", ((7, 7),), True, 2),
        ("for i in x:\n  def f():\n    MARK\n    y", ((5, 5),), True, 0),
    ],
)
def test_what_an_instant_knows_of_its_suite(
    body: str, statements: tuple[tuple[int, int], ...], is_before: bool, loop: int
) -> None:
    lines = [f"    {line}" for line in body.replace("MARK", "# kprof: mark m").split("\n")]
    (marker,) = found("\n".join(["def k():", *lines]))

    assert marker.kind == INSTANT
    assert (marker.statements, marker.is_before, marker.loop_line) == (statements, is_before, loop)


def test_in_a_file_of_tabs_and_form_feeds() -> None:
    text = "def k():\n\tif x:\n\t\ty\n        # kprof: mark a\n\tz\n\f\n\f\t# kprof: mark b\n"

    assert [brief(marker) for marker in found(text)] == ["k:4 a before 5-5", "k:7 b after 5-5"]


def test_the_function_of_a_comment() -> None:
    text = """\
def outer():
    x  # kprof: a
    def inner():
        # kprof: begin b
        y
        # kprof: end b
        # kprof: mark c
    # kprof: mark d

def last(): x  # kprof: e

class C:
    def method(self):
        z
        # kprof: mark f
"""
    assert [brief(marker) for marker in found(text)] == [
        "outer:2 a 2-2",
        "inner:4 b 5-5",
        "inner:7 c after 5-5",
        "outer:8 d after 3-5",
        "last:10 e 10-10",
        "method:15 f after 14-14",
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("# kprof: begin a\nx\ny\n# kprof: end a", ["2 a 3-4"]),
        ("# kprof: begin a\nx\n# kprof: end", ["2 a 3-3"]),
        ("# kprof: begin a; begin b\nx\n# kprof: end; end", ["2 a 3-3", "2 b 3-3"]),
        ("# kprof: begin a\nx\n# kprof: begin b\ny\n# kprof: end\nz\n# kprof: end a", ["2 a 3-7", "4 b 5-5"]),
        ("# kprof: begin a\nx\n# kprof: end a; begin b\ny\n# kprof: end b", ["2 a 3-3", "4 b 5-5"]),
        ("# kprof: begin a\nx\n# kprof: end\n# kprof: begin a\ny\n# kprof: end", ["2 a 3-3", "5 a 6-6"]),
        ("# kprof: begin a\n# kprof: begin a\nx\n# kprof: end a\n# kprof: end a", ["2 a 4-4", "3 a 4-4"]),
        ("# kprof: begin a\nx = f(\n1)\n# kprof: end", ["2 a 3-4"]),
        ("# kprof: begin a\n@d\ndef f():\n  x\n# kprof: end", ["2 a 3-5"]),
        ("# kprof: begin a\n'''doc'''\nx\npass\n# kprof: end", ["2 a 4-4"]),
        ("# kprof: begin a\nif x:\n  # kprof: begin b\n  y\n  # kprof: end\nz\n# kprof: end", ["2 a 3-7", "4 b 5-5"]),
        ("# kprof: begin a\nx  # kprof: b\n# kprof: end", ["2 a 3-3", "3 b 3-3"]),
    ],
)
def test_ranges(body: str, expected: list[str]) -> None:
    assert marked(body) == expected


WRONG = [
    # Comments that are no markers.
    ("def k():\n  # kprof begin load\n  x", "2:3"),
    # Ranges.
    ("def k():\n  # kprof: begin a\n  x", "2:12"),
    ("def k():\n  # kprof: mark b; begin a\n  x", "2:20"),
    ("def k():\n  x\n  # kprof: end a", "3:12"),
    ("def k():\n  # kprof: begin load\n  x\n  # kprof: end lod", "4:12"),
    ("def k():\n  # kprof: begin a\n  x\n  # kprof: begin b\n  y\n  # kprof: end a\n  # kprof: end b", "6:12"),
    ("def k():\n  for i in x:\n    # kprof: begin a\n    y\n  # kprof: end a", "5:12"),
    ("def k():\n  if x:\n    # kprof: begin a\n    y\n  else:\n    z\n    # kprof: end", "7:14"),
    ("def k():\n  # kprof: begin a\n  x\ndef l():\n  y\n  # kprof: end a", "6:12"),
    ("def k():\n  x\n  # kprof: begin a\n  # kprof: end a\n  y", "3:12"),
    ("def k():\n  # kprof: begin a\n  '''doc'''\n  pass\n  # kprof: end a", "2:12"),
    # Marks and statements.
    ("def k():\n  ...\n  # kprof: mark a", "3:12"),
    ("def k():\n  if x:\n    y\n  else:  # kprof: a\n    z", "4:19"),
    # Verbs.
    ("def k():\n  # kprof: begn a\n  x", "2:12"),
    ("def k():\n  # kprof: load_x\n  x", "2:12"),
    ("def k():\n  x  # kprof: load of x", "2:15"),
    ("def k():\n  for i in x:  # kprof: lop main\n    y", "2:25"),
    ("def k():\n  # kprof:\n  x", "2:3"),
    ("def k():\n  x  # kprof: ;  # noqa: F821", "2:6"),
    ("def k():\n  x  # kprof: begin a", "2:15"),
    ("def k():\n  x  # kprof: a; end", "2:18"),
    ("def k():\n  f(\n    # kprof: begin a\n  )", "3:14"),
    ("def k():\n  # kprof: loop a\n  x", "2:12"),
    ("def k():\n  for i in x:\n    y  # kprof: loop", "3:17"),
    ("def k():\n  for i in x:\n    y\n  else:  # kprof: loop\n    z", "4:19"),
    # Names.
    ("def k():\n  # kprof: begin\n  x", "2:12"),
    ("def k():\n  x\n  # kprof: mark; end", "3:12"),
    ("def k():\n  # kprof: begin a b\n  x", "2:20"),
    ("def k():\n\tx  # kprof: f(x)", "2:14"),
    ("def k():\n  x  # kprof: a#b", "2:15"),
    ('def k():\n  "é"  # kprof: "a"', "2:17"),
    # Places.
    ("x  # kprof: a", "1:13"),
    ("# kprof: mark a\ndef k():\n  x", "1:10"),
    ("def k():\n  x\n \f# kprof: mark a\n", "3:12"),
    ("@d\n# kprof: mark a\ndef k(): x\n", "2:10"),
    ("for i in x:  # kprof: loop\n  y", "1:23"),
    # Files.
    ("def k():\n  # kprof: begin a\n  x = = 1", "3:7"),
    ("def k():\n  x\n y\n# kprof:", "3:3"),
]


@pytest.mark.parametrize(("text", "at"), WRONG)
def test_a_wrong_marker(text: str, at: str) -> None:
    plain = refusal(text)
    for changed in (text, text.replace("\n", "\r\n"), text.replace("\n", "\r"), f"{text}\n", f"\ufeff{text}"):
        error = refusal(changed)

        assert (error.what, error.hint, error.exit_code) == (plain.what, plain.hint, 1)
        assert error.where is not None
        assert str(error.where) == f"k.py:{at}"
        assert error.where.text == text.split("\n")[error.where.line - 1]


def test_what_wrong_markers_are_told() -> None:
    check("select/markers", "\n\n".join(printable_lines(refusal(text).render()) for text, _ in WRONG))


def refusal(text: str) -> KprofError:
    with pytest.raises(KprofError) as caught:
        found(text)
    return caught.value


@dataclass
class Writer:
    """Writes a random function and notes the markers in it, in the order of the text."""

    draw: st.DrawFn
    tab: str
    lines: list[str]
    markers: list[str]

    def line(self, depth: int, text: str) -> int:
        if self.draw(st.integers(0, 9)) == 0:
            self.lines.append(self.draw(st.sampled_from(["", "# plain", "  # kprof", "\t", "\f"])))
        self.lines.append(self.tab * depth + text)
        return len(self.lines)

    def suite(self, depth: int, function: str, room: int) -> tuple[int, int]:
        """Write one to three items; the lines of the first and the last statement."""
        spans = [self.item(depth, function, room) for _ in range(self.draw(st.integers(1, 3)))]
        return spans[0][0], spans[-1][1]

    def item(self, depth: int, function: str, room: int) -> tuple[int, int]:
        choices = ["simple", "multi", *(["range", "range", "compound", "def"] if room else [])]
        return getattr(self, f"write_{self.draw(st.sampled_from(choices))}")(depth, function, room)

    def write_simple(self, depth: int, function: str, room: int) -> tuple[int, int]:
        line = self.line(depth, self.draw(st.sampled_from(["x = 1", "x; y", "if x: y", "x = '# kprof: end'"])))
        return line, line

    def write_multi(self, depth: int, function: str, room: int) -> tuple[int, int]:
        first = self.line(depth, self.draw(st.sampled_from(["f(  # a", "x = [", "g = lambda: {"])))
        self.lines.append(self.draw(st.sampled_from(["1,", "        # b", "'''", "\\"])))
        closing = {"'''": "''',"}.get(self.lines[-1], "")
        opening = self.lines[first - 1].split("#")[0].rstrip()[-1]
        self.lines.append(closing + {"(": ")", "[": "]", "{": "}"}[opening])
        return first, len(self.lines)

    def write_range(self, depth: int, function: str, room: int) -> tuple[int, int]:
        index = len(self.markers)
        self.markers.append("")
        begin = self.line(depth, f"# kprof: begin r{index}")
        first, last = self.suite(depth, function, room - 1)
        self.line(depth, f"# kprof: end{self.draw(st.sampled_from(['', f' r{index}']))}")
        self.markers[index] = f"{function}:{begin} r{index} {first}-{last}"
        return first, last

    def write_compound(self, depth: int, function: str, room: int) -> tuple[int, int]:
        headers = self.draw(
            st.sampled_from(
                [
                    ["if x:"],
                    ["if x:", "else:"],
                    ["if x:", "elif y:", "else:"],
                    ["for i in x:"],
                    ["while x:", "else:"],
                    ["with x:"],
                    ["try:", "except E:", "else:", "finally:"],
                ]
            )
        )
        spans = []
        for header in headers:
            spans.append((self.line(depth, header), self.suite(depth + 1, function, room - 1)[1]))
        return spans[0][0], spans[-1][1]

    def write_def(self, depth: int, function: str, room: int) -> tuple[int, int]:
        first = self.line(depth, "@d") if self.draw(st.booleans()) else 0
        name = f"f{len(self.lines)}"
        header = self.line(depth, f"def {name}():")
        return first or header, self.suite(depth + 1, name, room - 1)[1]


@st.composite
def functions(draw: st.DrawFn) -> tuple[str, list[str]]:
    writer = Writer(draw, draw(st.sampled_from([" ", "    ", "\t"])), [], [])
    for _ in range(draw(st.integers(1, 2))):
        writer.write_def(0, "", 4)
    return draw(st.sampled_from(["\n", "\r\n"])).join(writer.lines), writer.markers


@settings(max_examples=100, deadline=None, derandomize=True)
@given(functions())
def test_generated_ranges_cover_the_statements_between_them(generated: tuple[str, list[str]]) -> None:
    text, expected = generated

    assert [brief(marker) for marker in found(text)] == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(functions(), st.data())
def test_a_mark_stands_where_a_statement_in_its_place_would(
    generated: tuple[str, list[str]], data: st.DataObject
) -> None:
    lines = [line for line in generated[0].replace("\r", "").split("\n") if "kprof" not in line]
    index = data.draw(st.integers(1, len(lines)))
    near = data.draw(st.sampled_from(lines[index - 1 : index + 1]))
    indent = near[: len(near) - len(near.lstrip("\t "))]

    expected = neighbour("\n".join([*lines[:index], f"{indent}MARK", *lines[index:]]), index + 1)
    if expected:
        (marker,) = found("\n".join([*lines[:index], f"{indent}# kprof: mark m", *lines[index:]]))
        assert brief(marker).split(maxsplit=2)[2] == expected


def neighbour(text: str, line: int) -> str:
    """The statement that follows the one on ``line`` in its suite, or precedes it; empty if none is written there."""
    try:
        module = ast.parse(text)
    except SyntaxError:
        return ""
    bodies = (getattr(node, field, None) for node in ast.walk(module) for field in ("body", "orelse", "finalbody"))
    for suite in bodies:
        for index, statement in enumerate(suite if isinstance(suite, list) and suite is not module.body else []):
            if statement.lineno == line and ast.unparse(statement) == "MARK":
                is_before = index + 1 < len(suite)
                anchor = suite[index + 1 if is_before else index - 1]
                first = min(part.lineno for part in [anchor, *getattr(anchor, "decorator_list", [])])
                return f"{'before' if is_before else 'after'} {first}-{anchor.end_lineno}"
    return ""


def test_another_comment_may_come_first_behind_code() -> None:
    source = "def k():\n    x = f()  # type: ignore  # kprof: a\n    # type: ignore  # kprof: begin b\n"

    (marker,) = markers_in(Sources({"k.py": source}), "k.py")

    assert (marker.name, marker.line) == ("a", 2)
