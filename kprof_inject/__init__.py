"""Show where the time goes inside of Triton kernels, without a change of their code.

    with kprof_inject.profile() as prof:     # records each kernel that is launched in the block
        kernel[grid](x, y)
    print(prof.report())                     # what limits it, what to try, and how far to trust that
    prof.html("report.html")                 # the same with timelines, as one page
    prof.export("trace.pftrace")             # for https://ui.perfetto.dev

    results = kprof_inject.load("kprof_out")            # what kprof-inject profile wrote
    print(kprof_inject.diff("before", "after"))         # is it faster, and why

``profile`` and ``load`` return results, which have ``reports``, ``findings()``, ``timelines``, ``to_pandas()`` and
more. ``read_buffer`` reads what other profilers recorded. All errors are ``KprofError``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kprof_inject.version import __version__ as __version__

if TYPE_CHECKING:
    from kprof_inject.api import profile as profile
    from kprof_inject.capture.mode import Mode as Mode
    from kprof_inject.errors import KprofError as KprofError
    from kprof_inject.export.tables import to_arrow as to_arrow
    from kprof_inject.export.tables import to_pandas as to_pandas
    from kprof_inject.results import diff as diff
    from kprof_inject.results import load as load
    from kprof_inject.results import read_buffer as read_buffer

_PLACES = {
    "profile": "kprof_inject.api",
    "load": "kprof_inject.results",
    "diff": "kprof_inject.results",
    "read_buffer": "kprof_inject.results",
    "KprofError": "kprof_inject.errors",
    "Mode": "kprof_inject.capture.mode",
    "to_arrow": "kprof_inject.export.tables",
    "to_pandas": "kprof_inject.export.tables",
}
_HOOKS = {"load_ipython_extension": "kprof_inject.notebook"}
"""What other programs look for by name, and users do not call."""

__all__ = ["KprofError", "Mode", "diff", "load", "profile", "read_buffer", "to_arrow", "to_pandas"]


def __getattr__(name: str) -> Any:
    # The command line and the program's start-up hook must not load what the API needs.
    if place := _PLACES.get(name) or _HOOKS.get(name):
        return getattr(importlib.import_module(place), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List only the names of the API."""
    return sorted([*_PLACES, "__version__"])
