"""A library that replaces hundreds of torch's operators, where it is installed; else it says so."""

import importlib.util

import states
import torch


def main():
    torch.manual_seed(0)
    if importlib.util.find_spec("flag_gems") is None:
        print("not installed")
        return
    import flag_gems

    x = torch.randn(512, 512, device="cuda")
    with flag_gems.use_gems():
        y = torch.softmax(x, dim=-1)
        z = torch.nn.functional.layer_norm(x + y, (512,))
    flag_gems.enable()
    # Which of a library's configurations an autotuner takes is chance, and with it the last bits.
    print((x + z).sum().item() != 0)
    states.show(y=y)


if __name__ == "__main__":
    main()
