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
    thread = threading.Thread(target=lambda: states.scale(x, 4.0))
    thread.start()
    thread.join()
    cycle = [LaunchesLate(x)]
    cycle.append(cycle)
    sys.modules["kept"] = LaunchesLate(x)
    states.show(x=x)


if __name__ == "__main__":
    main()
