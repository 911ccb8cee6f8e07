"""Hand-written TTGIR in ``ttgir/forms.txt``, one text for each habit of the printer, and the outline that each has.

The outline follows the text below ``--- outline``. In it, an operation's children are indented below it; ``/`` begins a
second or later region, with the word that is printed before it; a block's label stands where the block begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from text_cases import cases_in

from kprof_inject.ttgir.nodes import Module, Operation


@dataclass(frozen=True)
class Form:
    name: str
    text: str
    outline: str

    def __repr__(self) -> str:  # the test's id
        return self.name


def outline(module: Module) -> str:
    """The module in the form of ``Form.outline``."""
    return "\n" + "".join(line for operation in module.operations for line in _lines(operation, ""))


def _lines(operation: Operation, indent: str) -> list[str]:
    lines = [f"{indent}{operation.name}\n"]
    for index, region in enumerate(operation.regions):
        if index or region.clause:
            lines.append(f"{indent}/ {region.clause}".rstrip() + "\n")
        for block in region.blocks:
            if block.label:
                lines.append(f"{indent}{block.label}\n")
            for child in block.operations:
                lines += _lines(child, indent + "  ")
    return lines


_WRITTEN = [
    Form(name, text, f"\n{tree}")
    for name, case in cases_in(Path(__file__).parent / "ttgir/forms.txt").items()
    for text, _, tree in [case.partition("--- outline\n")]
]
# What editors would not keep in a file.
_UNPRINTABLE = [
    Form(
        "odd spacing",
        "\n\n\t module{\n\n\ttt.func @kernel( ) { \t\n\n   \n  tt.return\n\n\n }\t\n\n}  \n\n \t",
        """
module
  tt.func
    tt.return
""",
    ),
    Form(
        "unicode",
        """\
#loc = loc("größe.py":1:2) // « } »
module { // 模块
  tt.func public @kernel(%x: i32 loc("größe"(#loc))) {
    tt.print " \u2028 × 大小: 🙂 } else { " {hex = false, isSigned = array<i32: 1>} : %x : i32 loc("naïve \\E4"(#loc))
    tt.return // \u2028tt.return
  } // \x0b\x0c\x85
}
""",
        """
module
  tt.func
    tt.print
    tt.return
""",
    ),
]
FORMS = {form.name: form for form in (*_WRITTEN, *_UNPRINTABLE)}
