"""Launches one kernel, works on a little, and ends as it is told to: 16 CTAs of 4 warps for each launch.

Prints its process id and the sum of its result first.
"""

import ctypes
import os
import signal
import sys
import time

import results
import torch
from kernels import BLOCK, decay_kernel, launch

CTAS, STEPS = 16, 20


def end_with_exception(x, out):
    raise ValueError("the program's own fault")


def end_without_memory(x, out):
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")


def end_with_device_fault(x, out):
    """The context is lost: from here on, every CUDA call of this process fails."""
    torch._assert_async(torch.zeros(1, device="cuda"))
    torch.cuda.synchronize()


def end_with_interrupt(x, out):
    """As Ctrl-C at a terminal: every process of the group gets it."""
    os.killpg(0, signal.SIGINT)
    signal.pause()


ENDINGS = {
    "return": lambda x, out: None,
    "exit": lambda x, out: sys.exit(3),
    "os-exit": lambda x, out: os._exit(4),
    "exception": end_with_exception,
    "interrupt": end_with_interrupt,
    "terminate": lambda x, out: os.kill(os.getpid(), signal.SIGTERM),
    "kill": lambda x, out: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda x, out: ctypes.string_at(0),
    "out-of-memory": end_without_memory,
    "device-fault": end_with_device_fault,
}


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--ending", choices=ENDINGS, default="return")
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--pause", type=float, default=1.0, metavar="SECONDS", help="what it works on (%(default)s)")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(CTAS * BLOCK, device="cuda")
    out = torch.empty_like(x)
    for _ in range(arguments.launches):
        launch(decay_kernel, x, out, STEPS)
    results.save(arguments.save, out)
    print(f"pid {os.getpid()}", flush=True)
    print(f"sum {out.sum().item()}", flush=True)
    time.sleep(arguments.pause)
    ENDINGS[arguments.ending](x, out)


if __name__ == "__main__":
    main()
