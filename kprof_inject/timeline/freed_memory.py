"""Memory that arrays leave, kept for the next ones."""

from __future__ import annotations

import numpy as np

# Below the largest size that glibc's threshold follows: 32 MiB on 64 bits.
_LARGE_BYTES = 30 << 20


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, instead of giving it back to the kernel and asking for it again, block by
    block: that is a fifth of the time that a trace takes.

    glibc gives back what exceeds twice a threshold: the size of the largest mapped chunk that was ever freed
    (``M_MMAP_THRESHOLD`` in mallopt(3)). This frees a large one, which nobody has written to. Other C libraries do as
    they did."""
    np.empty(_LARGE_BYTES, dtype=np.uint8)
