"""Launches and callbacks that come when the interpreter is about to end, and while it ends."""

import atexit
import ctypes
import gc
import sys
import threading

import states
import torch

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
libc = ctypes.CDLL(None)


@COMPARE
def compare(a, b):
    return a[0] - b[0]


@ctypes.CFUNCTYPE(None)
def last():
    libc.puts(b"at the process's end")


class LaunchesLate:
    def __init__(self, x):
        self.x = x

    def __del__(self):
        sys.stdout.write(f"late {states.digest(states.scale(self.x))}\n")


def sort_at_exit():
    numbers = (ctypes.c_int * 5)(5, 3, 1, 4, 2)
    libc.qsort(numbers, 5, ctypes.sizeof(ctypes.c_int), compare)
    print("sorted", list(numbers), gc.get_count()[2] >= 0)


def main():
    torch.manual_seed(0)
    x = torch.randn(1 << 16, device="cuda")
    atexit.register(sort_at_exit)
    atexit.register(lambda: print("scaled", states.digest(states.scale(x, 3.0))))
    libc.on_exit(ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(last), None)
    thread = threading.Thread(target=lambda: states.scale(x, 4.0))
    thread.start()
    thread.join()
    cycle = [LaunchesLate(x)]
    cycle.append(cycle)
    sys.modules["kept"] = LaunchesLate(x)
    sys.setrecursionlimit(200)
    deep(x, 60)
    states.show(x=x, modules=len([name for name in sys.modules if name.startswith("states")]))


def deep(x, levels):
    return states.scale(x) if not levels else deep(x, levels - 1)


if __name__ == "__main__":
    main()
