"""Launches kernels on the fake GPU, and ends as it is told to: ``fake_launches.py [ENDING]``.

Prints what they computed, and what the program itself can see of its kernels, which must be the same with us. What only
the device sees goes to stderr: one line of JSON.
"""

import json
import multiprocessing
import os
import signal
import sys
import time

from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import power, scale, total, tuned

X = torch.arange(1, 17, dtype=torch.float32)


def launch_scale(numbers):
    """The same number of elements as programs, each ``n`` once."""
    out = torch.zeros_like(X)
    for n in numbers:
        kernel = scale[(16,)](X, out, n)
    return kernel, out.tolist()


def launch_all(launches):
    # Inductor pickles these.
    compiled = scale.warmup(X, torch.zeros_like(X), 1, grid=(1,))
    print("holds", sorted((name, type(value).__module__) for name, value in vars(compiled).items()))
    kernel, scaled = launch_scale(range(1, launches + 1))
    print("scale", scaled, kernel.n_regs, kernel.n_spills)
    raised, summed, shifted = torch.zeros_like(X), torch.zeros(1), torch.zeros_like(X)
    for n in range(1, 4):
        power[(16,)](X, raised, n)
        tuned[(16,)](X, shifted, n)
        total[(1,)](X, summed, BLOCK=16)
    print("power", raised.tolist())
    print("tuned", shifted.tolist(), tuned.best_config)
    print("total", summed.tolist())


def tell_of_device():
    ran = [(launch.kernel.name, launch.num_warps, launch.num_stages, bool(launch.kernel.records)) for launch in gpu.ran]
    sys.stderr.write(json.dumps({"ran": ran, "freed_writes": gpu.freed_writes}) + "\n")


def launch_in_child(method, numbers):
    child = multiprocessing.get_context(method).Process(target=launch_scale, args=(numbers,))
    child.start()
    child.join()
    print(method, child.exitcode, flush=True)


def end_with_children():
    # Once a process has used its GPU, no forked child of it can.
    launch_in_child("fork", range(10, 13))
    pid = os.fork()
    if pid == 0:
        launch_scale([50])
        os._exit(5)
    print("os.fork", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    launch_scale([1])
    launch_in_child("spawn", range(20, 23))
    launch_in_child("forkserver", range(30, 33))
    launch_scale([2])


def end_killed(numbers, pause_s):
    """Two launches, a pause before and after the second."""
    for n in numbers:
        launch_scale([n])
        time.sleep(pause_s)
    os.kill(os.getpid(), signal.SIGKILL)


def end_with_exception():
    raise ValueError("the program's own fault")


ENDINGS = {
    "return": lambda: None,
    "exit": lambda: sys.exit(3),
    "raise": end_with_exception,
    "os-exit": lambda: os._exit(4),
    "children": end_with_children,
    "killed": lambda: end_killed(range(100, 400), 0),
    "killed-later": lambda: end_killed([100, 101], 1.1),
}

if __name__ == "__main__":
    ending = sys.argv[1] if sys.argv[1:] else "return"
    if ending == "return":
        launch_all(12)
        tell_of_device()
    elif ending in ("exit", "raise", "os-exit"):
        print(launch_scale(range(5))[1], flush=True)
    ENDINGS[ending]()
