"""Environment variables that alter the code that each version of Triton generates.

They are not in ``versions``, which imports Triton: the command line chooses switches without it.
"""

from __future__ import annotations

from msgspec import Struct


class Switch(Struct, frozen=True):
    """A variable with the value that sets it, on these backends, from Triton ``first`` on."""

    name: str
    value: str
    backends: tuple[str, ...] = ("cuda", "hip")
    first: tuple[int, int] = (0, 0)


# Only those that keep results, or change them by rounding alone, and that may be faster.
_SWITCHES = (
    # Triton's README: "Loop strength reduction is known to cause up to 10% performance changes for certain kernels with
    # register pressure". LLVM keeps this setting until the process ends.
    Switch("DISABLE_LLVM_OPT", "disable-lsr"),
)

SWITCH_NAMES = tuple(dict.fromkeys(switch.name for switch in _SWITCHES))


def switches_of(release: tuple[int, int], backend: str) -> list[Switch]:
    """Return the switches that a version of Triton has on a backend."""
    return [switch for switch in _SWITCHES if switch.first <= release and backend in switch.backends]
