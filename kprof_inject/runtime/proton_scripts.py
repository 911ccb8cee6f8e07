"""Programs that use Proton themselves: under us their session never begins, for there is one Proton in a process.

Proton's own command line treats a script's ``proton.start`` in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kprof_inject.runtime.faults import say

# By module: what begins a session, and what works on one. Triton up to 3.6 has no ``data``.
_STARTS = {"triton.profiler.profile": ("start",)}
_ON_SESSIONS = {
    "triton.profiler.profile": ("activate", "deactivate", "finalize"),
    "triton.profiler.data": ("get", "get_msgpack", "advance_phase", "is_phase_complete", "clear"),
}

PROTON_MODULES = tuple(_ON_SESSIONS)
"""The modules for ``withhold_sessions``."""


def withhold_sessions(module: ModuleType) -> None:
    """Turn the calls that begin a session of Proton's, or work on one, into calls that do nothing and return None.

    Call it right after the module was executed, before anyone copies a name out of it. Scopes and states need
    nothing: without a session they do nothing by themselves.
    """
    for names, stand_in in ((_STARTS, _warning), (_ON_SESSIONS, _silent)):
        for name in names.get(module.__name__, ()):
            if hasattr(module, name):
                setattr(module, name, stand_in(getattr(module, name)))


def _silent(original: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(original)
    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    return nothing


def _warning(original: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(original)
    def warn(*args: Any, **kwargs: Any) -> None:
        _warn_once()

    return warn


@functools.cache
def _warn_once() -> None:
    say("the program's proton.start() does nothing here; run it by itself for Proton's own profile")
