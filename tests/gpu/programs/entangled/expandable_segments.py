"""Expandable segments, whose memory is mapped piece by piece, with views that end at a mapping's end."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"

import states
import torch


def main():
    torch.manual_seed(0)
    kept, out = [], None
    for number in range(1, 12):
        x = torch.randn(number << 18, device="cuda")
        out = states.scale(x[::1], float(number))
        kept.append(out[-(1 << 10) :].clone())
        del x
        if number % 4 == 0:
            torch.cuda.empty_cache()
    states.show(kept=kept, out=out)


if __name__ == "__main__":
    main()
