"""A CUDA graph, replayed 100 times. The kernel in it loops as often as the graph was replayed so far.

16 CTAs of 4 warps; there are launches before the graph is captured, as there are in programs that warm up.
"""

import results
import torch
from kernels import BLOCK, counted_kernel, launch

CTAS, REPLAYS = 16, 100


def main() -> None:
    arguments = results.parser(__doc__).parse_args()
    torch.manual_seed(0)
    x = torch.randn(CTAS * BLOCK, device="cuda")
    out = torch.zeros_like(x)
    steps = torch.zeros(1, device="cuda", dtype=torch.int32)

    warm_up = torch.cuda.Stream()
    warm_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up):
        for _ in range(3):
            launch(counted_kernel, x, out, steps)
    torch.cuda.current_stream().wait_stream(warm_up)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps.add_(1)
        launch(counted_kernel, x, out, steps)
    for _ in range(REPLAYS):
        graph.replay()
    results.save(arguments.save, out, steps)


if __name__ == "__main__":
    main()
