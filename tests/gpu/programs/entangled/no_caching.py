"""No caching allocator: each tensor is memory of the driver's, and its address comes again at once."""

import os

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

import states
import torch


def main():
    torch.manual_seed(0)
    x = torch.randn(1 << 18, device="cuda")
    addresses = []
    for number in range(6):
        y = states.scale(x, 1.0 + number)
        addresses.append(y.data_ptr() == x.data_ptr())
        x = y + 1
        del y
    states.show(x=x, addresses=addresses)


if __name__ == "__main__":
    main()
