"""A real kernel's source and TTGIR for captures of the attention kernel, whose scopes then stand where they would."""

from __future__ import annotations

import json
from pathlib import Path

from buffers import make_editable

_FIXTURES = Path(__file__).parents[2] / "ttgir_fixtures"
_TTGIR = _FIXTURES / "3.6.0" / "cuda-90" / "attention.ttgir"
_SOURCE = _FIXTURES / "kernels" / "attention.py"
_PATH = "/kprof-inject/ttgir_fixtures/kernels/attention.py"
# Of each scope the line, the line of the call that inlined it, and its first and last line of the TTGIR.
_LINES = [
    (44, 0, (32, 290)),
    (27, 81, (121, 176)),
    (27, 81, (121, 176)),
    (28, 81, (127, 169)),
    (29, 81, (129, 131)),
    (33, 81, (137, 137)),
    (38, 81, (152, 157)),
    (90, 0, (283, 289)),
]


def give_code(folder: Path) -> None:
    """Put them into every kernel of a capture, with the scopes of ``attention_capture``."""
    make_editable(folder)
    for path in folder.glob("*/kernels/*/kernel.json"):
        kernel = json.loads(path.read_text())
        for scope, (line, call, lines) in zip(kernel["scope_table"]["scopes"], _LINES, strict=True):
            scope["source"] = _point(line)
            scope["called_from"] = [_point(call)] if call else []
            scope["lines"] = lines
        path.write_text(json.dumps(kernel))
        (path.parent / "kernel.ttgir").write_text(_TTGIR.read_text())
        (path.parent / "sources.json").write_text(json.dumps({_PATH: _SOURCE.read_text()}))


def _point(line: int) -> dict[str, str | int]:
    return {"file": _PATH, "line": line, "column": 0}
