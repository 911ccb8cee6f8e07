"""Registrations with torch's dispatcher that die late: libraries with kernels, custom operators, and their owners."""

import atexit
import ctypes
import sys
import weakref

import states
import torch
from torch import library

defined = library.Library("entangled", "DEF")
defined.define("scaled(Tensor x, float factor) -> Tensor")
defined.impl("scaled", lambda x, factor: states.scale(x, factor), "CUDA")
replaced = library.Library("aten", "IMPL")
replaced.impl("neg", lambda x: states.scale(x, -1.0), "CUDA", allow_override=True)


@library.custom_op("entangled::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return states.scale(x, 2.0)


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


@library.triton_op("entangled::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    library.wrap_triton(states.scale_kernel)[(64,)](x, out, x.numel(), 0.5, BLOCK=1024)
    return out


class Owner:
    """Prints when it is collected, from a reference cycle."""

    def __init__(self, name, x):
        self.name, self.x, self.me = name, x, self

    def __del__(self):
        sys.stdout.write(f"{self.name} collected\n")


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
callback = CALLBACK(lambda number: number + 1)


def main():
    torch.manual_seed(0)
    x = torch.randn(1 << 16, device="cuda")
    y = torch.ops.entangled.scaled(x, 3.0)
    y = torch.compile(lambda z: halved(doubled(z)) + 1)(y)
    y = -y
    global owner
    owner = Owner("owner", x)
    weakref.finalize(owner, print, "owner finalized")
    atexit.register(lambda: print("at exit", callback(1), float(states.scale(x).sum() > -1e9)))
    states.show(y=y)


if __name__ == "__main__":
    main()
