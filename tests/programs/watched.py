"""Launches ``scale`` on the fake GPU until there is a file ``stop``: ``watched.py N N_AFTER_DRIFT``.

Once there is a file ``drift``, ``n`` is the second number. Each launch takes 10,000 + n cycles.
"""

import sys
import time
from pathlib import Path

from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import scale

LIMIT_S = 120
before, after = int(sys.argv[1]), int(sys.argv[2])
x = torch.arange(1, 17, dtype=torch.float32)
out = torch.zeros_like(x)
begun, launches = time.monotonic(), 0
while time.monotonic() - begun < LIMIT_S and not Path("stop").exists():
    n = after if Path("drift").exists() else before
    scale[(16,)](x, out, n)
    launches += 1
    time.sleep(0.002)
print(out.sum().item() == 136 * n, len(gpu.ran) == launches)
sys.stderr.write(f"with records: {sum(bool(launch.kernel.records) for launch in gpu.ran)} of {launches}\n")
