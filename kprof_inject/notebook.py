"""The cell magic ``%%kprof`` of IPython and Jupyter; ``%load_ext kprof_inject`` registers it."""

from __future__ import annotations

import argparse
import importlib
import shlex
from contextlib import suppress
from typing import Any

from kprof_inject.errors import KprofError

_RESULT = "prof"


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise KprofError(f"%%kprof: {message}", hint=self.format_usage().strip())


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic: ``%%kprof [--at SELECTOR]... [--kernel GLOB] [--launches SPEC] [--ctas CTAS]``.

    It runs the cell in ``kprof_inject.profile``, whose arguments these are, shows the report, and leaves the profile in
    the variable ``prof``.
    """
    parser = _Arguments(prog="%%kprof", add_help=False)
    parser.add_argument("--at", action="append", default=[], metavar="SELECTOR")
    parser.add_argument("--kernel", default="*", metavar="GLOB")
    parser.add_argument("--launches", default="last", metavar="SPEC")
    parser.add_argument("--ctas", default="auto")

    def kprof(line: str, cell: str) -> Any:
        from kprof_inject.api import profile

        try:
            prof = profile(**vars(parser.parse_args(shlex.split(line))))
        except (KprofError, ValueError) as error:  # shlex raises the latter for a quotation without an end
            with suppress(ImportError):
                raise importlib.import_module("IPython.core.error").UsageError(str(error)) from None
            raise
        with prof:
            ran = shell.run_cell(cell)
        shell.user_ns[_RESULT] = prof
        # An error in the cell was shown already.
        return prof if ran.success else None

    shell.register_magic_function(kprof, magic_kind="cell", magic_name="kprof")
