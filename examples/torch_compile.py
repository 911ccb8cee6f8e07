"""A gated layer that torch.compile turns into Triton kernels: no kernel is written here."""

import argparse
import hashlib
import sys

import torch


class GatedLayer(torch.nn.Module):
    """x + down(silu(gate) * value), with a norm before: what stands between the matrix products is fused."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        return x + self.down(torch.nn.functional.silu(gate) * value)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096, help="tokens (%(default)s)")
    parser.add_argument("--width", type=int, default=1024, help="features of each (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="calls (%(default)s)")
    parser.add_argument("--save", metavar="FILE", help="write the result there with torch.save")
    arguments = parser.parse_args()
    if min(arguments.rows, arguments.width, arguments.repeat) < 1:
        parser.error("--rows, --width and --repeat must be at least 1")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("torch_compile: no CUDA device found", file=sys.stderr)
        return 1

    torch.manual_seed(0)
    layer = GatedLayer(arguments.width, 4 * arguments.width).to("cuda", torch.float16)
    x = torch.randn((arguments.rows, arguments.width), device="cuda", dtype=torch.float16)
    compiled = torch.compile(layer)
    with torch.no_grad():
        for _ in range(arguments.repeat):
            out = compiled(x)
        expected = layer.float()(x.float())

    error = (out.float() - expected).abs().max().item()
    # Each step in between is rounded to half precision: the last bit at the largest value, eight times over.
    limit = expected.abs().max().item() * 2**-7
    result = out.cpu()
    digest = hashlib.sha256(result.numpy().tobytes()).hexdigest()
    print(f"torch_compile {arguments.rows}x{arguments.width} float16: max abs error {error:.3g}, sha256 {digest}")
    if arguments.save:
        torch.save(result, arguments.save)
    if not error <= limit:
        print(f"torch_compile: the error is larger than {limit:.3g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
