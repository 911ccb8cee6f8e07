"""Two kernels, each on two streams, which overlap. With --threads, each stream has a thread of its own.

Each stream launches both kernels ROUNDS times, 16 CTAs of 4 warps, for a good part of a millisecond.
"""

import threading

import results
import torch
from kernels import BLOCK, NUM_WARPS, decay_kernel, launch, root_kernel

CTAS, ROUNDS, STEPS = 16, 4, 100_000


def work(stream, kernels, x, outs):
    with torch.cuda.stream(stream):
        for kernel, out in zip(kernels, outs, strict=True):
            launch(kernel, x, out, STEPS)


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--threads", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    x = torch.rand(CTAS * BLOCK, device="cuda")
    orders = ((decay_kernel, root_kernel), (root_kernel, decay_kernel))
    streams = [torch.cuda.Stream() for _ in orders]
    outs = [[[torch.empty_like(x) for _ in order] for _ in range(ROUNDS)] for order in orders]
    torch.cuda.synchronize()

    together = threading.Barrier(len(streams))

    def rounds(place):
        for round_outs in outs[place]:
            together.wait()
            work(streams[place], orders[place], x, round_outs)

    if arguments.threads:
        # Two threads that meet a new kernel both compile it, and the first is done before the second launches.
        for kernel, out in zip(orders[0], outs[0][0], strict=True):
            kernel.warmup(x, out, STEPS, BLOCK=BLOCK, num_warps=NUM_WARPS, grid=(1,))
        threads = [threading.Thread(target=rounds, args=(place,)) for place in range(len(streams))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for number in range(ROUNDS):
            for place, stream in enumerate(streams):
                work(stream, orders[place], x, outs[place][number])
    torch.cuda.synchronize()
    results.save(arguments.save, *(out for place in outs for made in place for out in made))


if __name__ == "__main__":
    main()
