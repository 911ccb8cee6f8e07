"""Launches kernels on the fake GPU, and ends as it is told to: ``fake_launches.py [ENDING]``.

Prints what they computed, and what the program itself can see of its kernels, which must be the same with us. What only
the device sees goes to stderr: one line of JSON.
"""

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import power, scale, total, tuned
from triton import knobs

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


def forked(work):
    """The pid of a child that does this, and leaves without a word."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid


def exit_code_of(pid, limit_s=20):
    """None for a child that hangs; it is killed."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def become_another_program():
    launch_scale([60, 61])
    try:
        os.execv("/dev/null", ["null"])
    except OSError:
        launch_scale([62])
    os.execvp("true", ["true"])


def be_terminated():
    launch_scale(range(70, 73))
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def go_on_alone(life):
    os.setsid()
    launch_scale([80, 81])
    os.write(life[1], b"launched")
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    while os.getppid() != 1 and os.getppid() == go_on_alone.parent:
        time.sleep(0.05)
    time.sleep(2)


def say_and_launch(number):
    os.write(2, b"child %d\n" % number)
    launch_scale([number])


def end_with_workers():
    """Children that end as they like, or not at all."""
    print("exec", exit_code_of(forked(become_another_program)), flush=True)
    print("terminated", exit_code_of(forked(be_terminated)), flush=True)
    life = os.pipe()
    go_on_alone.parent = os.getpid()
    print("detached", forked(lambda: go_on_alone(life)), flush=True)
    os.read(life[0], 8)
    # Python's own locks of modules that are being imported do not survive a fork.
    launch_scale([5])
    # In a thread of its own, which no child has.
    thread = threading.Thread(target=lambda: launch_power(range(1, 4)))
    thread.start()
    children = []
    for number in range(90, 98):
        children.append(forked(lambda number=number: say_and_launch(number)))
        time.sleep(0.02)
    print("while compiling", [exit_code_of(child) for child in children], flush=True)
    thread.join()


def launch_power(numbers):
    for n in numbers:
        power[(16,)](X, torch.zeros_like(X), n)


def end_with_caches_of_its_own():
    """What the program finds in the folders that it names, by the end of the names."""
    folders = [Path(tempfile.mkdtemp()) for _ in range(2)]
    os.environ["TRITON_CACHE_DIR"] = str(folders[0])
    launch_scale([1])
    knobs.cache.dir = str(folders[1])
    launch_power([2])
    for folder in folders:
        print(sorted(Counter(path.name for path in folder.glob("*/*")).items()))


def end_with_exception():
    raise ValueError("the program's own fault")


ENDINGS = {
    "return": lambda: None,
    "exit": lambda: sys.exit(3),
    "raise": end_with_exception,
    "os-exit": lambda: os._exit(4),
    "children": end_with_children,
    "workers": end_with_workers,
    "own-caches": end_with_caches_of_its_own,
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
