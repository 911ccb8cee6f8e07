"""Launches ``scale`` on the fake GPU, with another ``n`` after half of the time: ``SECONDS N_BEFORE N_AFTER``.

Each launch takes 10,000 + n cycles.
"""

import sys
import time

from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import scale

seconds, before, after = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
x = torch.arange(1, 17, dtype=torch.float32)
out = torch.zeros_like(x)
begun, launches = time.monotonic(), 0
while (elapsed := time.monotonic() - begun) < seconds:
    scale[(16,)](x, out, after if elapsed > seconds / 2 else before)
    launches += 1
    time.sleep(0.002)
print(out.sum().item(), len(gpu.ran) == launches)
sys.stderr.write(f"with records: {sum(bool(launch.kernel.records) for launch in gpu.ran)} of {launches}\n")
