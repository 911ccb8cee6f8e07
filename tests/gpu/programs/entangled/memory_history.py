"""The allocator's own history of what was allocated, and an observer of its running out of memory."""

import collections

import states
import torch


def main():
    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history(max_entries=10000, stacks="python")
    torch._C._cuda_attach_out_of_memory_observer(lambda *_: print("out of memory"))
    x = torch.randn(1 << 18, device="cuda")
    for _ in range(4):
        x = states.scale(x)
    torch.cuda.synchronize()
    snapshot = torch.cuda.memory._snapshot()
    events = collections.Counter(one["action"] for trace in snapshot["device_traces"] for one in trace)
    shapes = [(one["total_size"], one["allocated_size"], len(one["blocks"])) for one in snapshot["segments"]]
    torch.cuda.memory._record_memory_history(enabled=None)
    states.show(x=x, events=sorted(events.items()), shapes=shapes)


if __name__ == "__main__":
    main()
