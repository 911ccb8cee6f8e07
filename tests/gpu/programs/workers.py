"""Three worker processes on one GPU. Worker i launches 8 (i + 1) CTAs of 4 warps; CUDA is first used in the workers."""

import multiprocessing

import numpy as np
import results
import torch
from kernels import BLOCK, decay_kernel, launch

WORKERS, LAUNCHES, STEPS = 3, 4, 50


def work(worker: int, folder: str) -> None:
    torch.manual_seed(worker)
    x = torch.randn(8 * (worker + 1) * BLOCK, device="cuda")
    out = torch.empty_like(x)
    for _ in range(LAUNCHES):
        launch(decay_kernel, x, out, STEPS)
    results.save(f"{folder}/{worker}.npy", out)


def main() -> None:
    import tempfile

    arguments = results.parser(__doc__).parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        workers = [context.Process(target=work, args=(number, folder)) for number in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert all(worker.exitcode == 0 for worker in workers), [worker.exitcode for worker in workers]
        made = [torch.from_numpy(np.load(f"{folder}/{number}.npy")) for number in range(WORKERS)]
    results.save(arguments.save, *made)


if __name__ == "__main__":
    main()
