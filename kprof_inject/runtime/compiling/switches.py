"""Environment variables that alter the code that each version of Triton generates.

They are not in ``versions``, which imports Triton: the command line chooses switches without it.
"""

from __future__ import annotations

from msgspec import Struct

from kprof_inject.capture.schema import Target


class Switch(Struct, frozen=True):
    """A variable with the value that sets it, on these backends, from Triton ``first`` on.

    ``generation`` is the only one of NVIDIA's architectures that it alters, such as 9 for sm_90; 0 if it is any. With
    ``needs_dots``, it alters no kernel without dots.
    """

    name: str
    value: str
    backends: tuple[str, ...] = ("cuda", "hip")
    first: tuple[int, int] = (0, 0)
    generation: int = 0
    needs_dots: bool = False

    def is_for(self, release: tuple[int, int], target: Target) -> bool:
        """Return whether a version of Triton has the switch for a target."""
        if release < self.first or target.backend not in self.backends:
            return False
        return not self.generation or (isinstance(target.arch, int) and target.arch // 10 == self.generation)


_CUDA = ("cuda",)

# Only those that keep results, or change them by rounding alone, and that may be faster.
_SWITCHES = (
    # Triton's README: "Loop strength reduction is known to cause up to 10% performance changes for certain kernels with
    # register pressure". LLVM keeps this setting until the process ends.
    Switch("DISABLE_LLVM_OPT", "disable-lsr"),
    # Triton sets each of LLVM's flags in the list. LLVM: "NVPTX Specific: schedule for register pressure".
    Switch("DISABLE_LLVM_OPT", "nvptx-sched4reg", _CUDA),
    # Dots by mma.sync of single warps. They neither wait for a warp group nor need operands in shared memory, which may
    # be faster for small tiles.
    Switch("DISABLE_MMA_V3", "1", _CUDA, generation=9, needs_dots=True),
    Switch("DISABLE_MMA_V5", "1", _CUDA, generation=10, needs_dots=True),
)

SWITCH_NAMES = tuple(dict.fromkeys(switch.name for switch in _SWITCHES))


def switches_of(release: tuple[int, int], target: Target) -> list[Switch]:
    """Return the switches that a version of Triton has for a target."""
    return [switch for switch in _SWITCHES if switch.is_for(release, target)]
