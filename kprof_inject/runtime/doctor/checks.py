"""All that ``doctor`` looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kprof_inject.runtime.doctor import machine, packages, startup
from kprof_inject.runtime.doctor.finding import Finding, Status

Check = Callable[[], Iterable[Finding]]

_CHECKS: tuple[tuple[str, Check], ...] = (
    ("Python", packages.python),
    ("packages", packages.required),
    ("optional packages", packages.optional),
    ("Triton", packages.triton),
    ("Proton", packages.proton),
    ("torch", packages.torch),
    ("GPU", machine.gpus),
    ("GPU driver", machine.driver),
    ("compiler", machine.compiler),
    ("start-up hook", startup.hook),
    ("environment", startup.environment),
    ("current folder", machine.current_folder),
)


def examine() -> Iterator[Finding]:
    """Look at everything. A check that fails in a way that nobody foresaw is a finding as well."""
    for what, check in _CHECKS:
        yield from _findings_of(what, check)


def _findings_of(what: str, check: Check) -> list[Finding]:
    try:
        return list(check())
    except Exception as error:  # noqa: BLE001 (a broken installation may fail in any way)
        fact = f"cannot be looked at: {type(error).__name__}: {error}"
        return [Finding(what, Status.PROBLEM, fact, "it is broken, or unknown to kprof-inject: please report it")]
