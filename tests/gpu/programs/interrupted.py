"""Ctrl-C at random moments while three threads launch one kernel on one stream, in one process that is profiled.

Each attempt: the main thread and two others launch, SIGINT comes, the others must go on at once, and then the capture
is ended as at the end of a process. Prints, in seconds, what that took at the longest.
"""

import argparse
import os
import random
import signal
import tempfile
import threading
import time

import torch
from kernels import BLOCK, decay_kernel, launch

import kprof_inject

CTAS, STEPS = 16, 20
LIMIT_S = 2.0


def progress_of(counts, before):
    """How long it takes until every other thread has launched once more; None if that is too long."""
    begun = time.monotonic()
    while any(count <= was for count, was in zip(counts, before, strict=True)):
        if time.monotonic() - begun > LIMIT_S:
            return None
        time.sleep(0.0005)
    return time.monotonic() - begun


def attempt(profile, x, out, delay_s, pause_s):
    """How long the other threads and the end took, and how many launches the capture has. None: too long."""
    counts, stop = [0, 0], threading.Event()

    def work(number):
        while not stop.is_set():
            launch(decay_kernel, x, out[number], STEPS)
            counts[number] += 1
            time.sleep(pause_s)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in (0, 1)]
    for thread in threads:
        thread.start()
    caught = threading.Event()

    def interrupt():
        time.sleep(delay_s)
        while not caught.is_set():  # Python drops what comes while an object is deleted
            os.kill(os.getpid(), signal.SIGINT)
            caught.wait(0.5)

    interrupter = threading.Thread(target=interrupt)
    try:
        interrupter.start()
        while True:
            launch(decay_kernel, x, out[2], STEPS)
            time.sleep(pause_s)
    except KeyboardInterrupt:
        caught.set()
    went_on_s = progress_of(counts, counts.copy())
    stop.set()
    for thread in (*threads, interrupter):
        thread.join(LIMIT_S)
        if thread.is_alive():
            return went_on_s, None, 0
    begun = time.monotonic()
    folder = profile._capture.take()  # without reading what was captured
    ended_s = time.monotonic() - begun
    saved = len(list(folder.glob("*/launch-*.bin")))
    return went_on_s, ended_s if ended_s <= LIMIT_S else None, saved


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=100)
    parser.add_argument("--launches", default="last")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="after each launch (%(default)s)")
    arguments = parser.parse_args()
    moments = random.Random(14)
    x = torch.randn(CTAS * BLOCK, device=arguments.device)
    out = torch.empty((3, CTAS * BLOCK), device=arguments.device)
    went_on, ended, hangs, lost = [], [], 0, 0
    with (
        tempfile.TemporaryDirectory() as folder,
        kprof_inject.profile(at=["func"], launches=arguments.launches, max_bytes=1 << 26, folder=folder) as profile,
    ):
        launch(decay_kernel, x, out[2], STEPS)  # compiles
        profile.reset()
        for _ in range(arguments.attempts):
            went_on_s, ended_s, saved = attempt(profile, x, out, moments.uniform(0.001, 0.05), arguments.pause)
            if went_on_s is None or ended_s is None:
                hangs += 1
                break  # what hangs once does so again
            went_on.append(went_on_s)
            ended.append(ended_s)
            lost += saved == 0
    print(
        f"attempts {len(ended)} hangs {hangs} without_launch {lost} "
        f"others_went_on_s {max(went_on, default=0):.3f} end_s {max(ended, default=0):.3f}"
    )


if __name__ == "__main__":
    main()
