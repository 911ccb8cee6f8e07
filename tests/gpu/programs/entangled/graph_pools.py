"""CUDA graphs that share a pool, each with kernels that another one feeds, beside launches outside of graphs."""

import states
import torch


def main():
    torch.manual_seed(0)
    x = torch.randn(1 << 16, device="cuda")
    states.scale(x)  # compiled before a graph is captured
    pool = torch.cuda.graph_pool_handle()
    graphs, middle = [], x
    for number in range(3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            noise = torch.rand_like(middle)
            middle = states.scale(middle + noise, 1.0 + number)
        graphs.append(graph)
    total = torch.zeros((), device="cuda")
    for _ in range(5):
        for graph in graphs:
            graph.replay()
        total += states.scale(middle).sum()
    segments = [one for one in torch.cuda.memory_snapshot() if one["segment_pool_id"] == tuple(pool)]
    blocks = [(block["size"], block["state"]) for one in segments for block in one["blocks"]]
    states.show(middle=middle, total=total, blocks=blocks)


if __name__ == "__main__":
    main()
