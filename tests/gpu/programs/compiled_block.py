"""A transformer block that ``torch.compile`` compiles, with a Triton kernel of the user's own inside of it."""

import results
import torch
import triton
import triton.language as tl

ROWS, WIDTH, HEADS, HIDDEN = 128, 256, 4, 512


@triton.jit
def gate_kernel(x_ptr, gate_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x * silu(gate)."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    gate = tl.load(gate_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, x * gate * tl.sigmoid(gate), mask=mask)


def gated(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    gate_kernel[(triton.cdiv(x.numel(), 1024),)](x, gate, out, x.numel(), BLOCK=1024)
    return out


class RmsNorm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        square = x.float().pow(2).mean(-1, keepdim=True)
        return (x * torch.rsqrt(square + 1e-6)).to(x.dtype) * self.weight


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(RmsNorm() for _ in range(2))
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.project = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = torch.nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = torch.nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).view(ROWS, 3, HEADS, -1).permute(1, 2, 0, 3)
        mixed = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        x = x + self.project(mixed.transpose(0, 1).reshape(ROWS, WIDTH))
        value, gate = self.up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(gated(value.contiguous(), gate.contiguous()))


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--mode", default="default", help="torch.compile's; reduce-overhead replays CUDA graphs")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    block = Block().to("cuda", torch.float16)
    x = torch.randn((ROWS, WIDTH), device="cuda", dtype=torch.float16)
    compiled = torch.compile(block, mode=arguments.mode)
    with torch.no_grad():
        outputs = [compiled(x).clone() for _ in range(5)]
        error = (outputs[-1].float() - block(x).float()).abs().max().item()
    assert error < 0.05, f"compiled and eager outputs differ by {error}"
    results.save(arguments.save, *outputs)


if __name__ == "__main__":
    main()
