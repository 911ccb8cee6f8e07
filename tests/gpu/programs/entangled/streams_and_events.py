"""Streams of several priorities, memory used on another stream than its own, and events that order them."""

import states
import torch


def main():
    torch.manual_seed(0)
    x = torch.randn(1 << 20, device="cuda")
    side, urgent = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    begun = torch.cuda.Event()
    out = []
    for number in range(4):
        begun.record()
        with torch.cuda.stream(side):
            side.wait_event(begun)
            y = states.scale(x, 1.0 + number)
        with torch.cuda.stream(urgent):
            urgent.wait_stream(side)
            y.record_stream(urgent)
            z = states.scale(y)
        torch.cuda.current_stream().wait_stream(urgent)
        out.append(z + torch.rand_like(z))
        torch.cuda.synchronize()  # else it is chance when memory is free again
        del y, z
    raw = torch.cuda.caching_allocator_alloc(1 << 20)
    torch.cuda.caching_allocator_delete(raw)
    states.show(out=out)


if __name__ == "__main__":
    main()
