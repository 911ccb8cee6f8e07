"""The same module, printed otherwise: by rewriting its text, or by Triton's own printer."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from golden import parse_with_triton
from triton._C.libtriton import ir

from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.strings import STRING

_LOCATION = re.compile(r"[ \t]*\bloc\((?:[^()\"]|\((?:[^()\"]|" + STRING + r")*\)|" + STRING + r")*\)")
_LOCATION_ALIAS = re.compile(r"^#loc\d* = .*\n", re.MULTILINE)
_NAME = re.compile(rf"{STRING}|%([a-zA-Z]\w*)")
_ALIAS = re.compile(rf"{STRING}|#[\w$.-]+")
_DEFINITION = re.compile(r"^#[\w$.-]+ = .*\n", re.MULTILINE)
_OLD_NAMES = {"ttng.": "triton_nvidia_gpu.", "ttg.": "triton_gpu.", "!triton_gpu.memdesc": "!tt.memdesc"}


def without_locations(text: str) -> str:
    """As ``str_nodebug`` prints it, but for names."""
    return _outside_of_strings(_LOCATION, lambda found: "", _LOCATION_ALIAS.sub("", text))


def with_other_names(text: str) -> str:
    return _NAME.sub(lambda found: f"%{found[1]}_x" if found[1] else found[0], text)


def local_scope(text: str) -> str:
    """With each alias written out, as ``--mlir-print-local-scope`` has it."""
    aliases = parse(text).aliases

    def written_out(found: re.Match[str]) -> str:
        body = aliases.get(found[0])
        if body is None:
            return found[0]
        return _ALIAS.sub(written_out, body.removeprefix("loc(").removesuffix(")") if body.startswith("loc(") else body)

    return _ALIAS.sub(written_out, _DEFINITION.sub("", text))


def of_old_triton(text: str) -> str:
    """With the names that Triton 3.2 had."""
    for new, old in _OLD_NAMES.items():
        text = text.replace(new, old)
    return text


def located_in_dump(text: str) -> str:
    """With USE_IR_LOC=ttir: each operation's location is its line in Triton's dump of the stage before."""
    numbers = count(100)
    bare = without_locations(text)
    return re.sub(
        r"^( +(?:%\S.* = )?\"?[a-z]+\.[\w.]+.*[^{\n])$",
        lambda found: f'{found[1]} loc("/tmp/kernel.ttir":{next(numbers)}:5)',
        bare,
        flags=re.MULTILINE,
    )


REWRITTEN: dict[str, Callable[[str], str]] = {
    "without locations": without_locations,
    "other names": with_other_names,
    "local scope": local_scope,
    "names of Triton 3.2": of_old_triton,
    "locations in a dump": located_in_dump,
    "all of it": lambda text: of_old_triton(local_scope(with_other_names(without_locations(text)))),
}


def _outside_of_strings(pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str) -> str:
    either = re.compile(rf"(?P<string>{STRING})|(?:{pattern.pattern})")
    return either.sub(lambda found: found[0] if found["string"] else replace(found), text)


def printed_by_triton(text: str) -> dict[str, str]:
    """A module in the forms that Triton's bindings print."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ttgir")
        path.write_text(text)
        module = parse_with_triton(path)
    forms = {"as usual": module.str(), "bare": module.str_nodebug(), "local": _dumped(module)}
    # The printer falls back to the generic form for a module that does not verify: here one with a number of warps that
    # its layouts contradict.
    warps = module.get_int_attr("ttg.num-warps")
    module.set_attr("ttg.num-warps", ir.builder(module.context).get_int32_attr(2 * warps))
    for name, generic in {"generic": module.str(), "generic, local": _dumped(module)}.items():
        if '"builtin.module"() (' in generic:  # a module without layouts verifies
            forms[name] = re.sub(rf'("ttg.num-warps" = ){2 * warps}\b', rf"\g<1>{warps}", generic)
    return forms


def _dumped(module: Any) -> str:
    """What Triton writes to stderr, without aliases."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as written:
        stderr = os.dup(2)
        os.dup2(written.fileno(), 2)
        try:
            module.dump()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        written.seek(0)
        return written.read().decode()
