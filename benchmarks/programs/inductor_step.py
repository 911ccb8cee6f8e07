"""Training steps of a small GPT, compiled by Inductor: forward, backward, AdamW."""

from __future__ import annotations

import steps
import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, BATCH, LENGTH = 16384, 1024, 16, 8, 1024


class Block(nn.Module):
    """Attention and an MLP, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + functional.dropout(self.out(mixed), 0.1)
        return x + functional.dropout(self.down(functional.gelu(self.up(self.norms[1](x)))), 0.1)


class Model(nn.Module):
    """Embeddings, blocks, and the loss of the next token."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens[:, :-1]) + self.places(torch.arange(tokens.shape[1] - 1, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def main() -> None:
    parser = steps.parser(__doc__)
    parser.add_argument("--layers", type=int, default=4, help="how many (%(default)s)")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Model(arguments.layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = torch.compile(model)
    update = torch.compile(optimizer.step)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(tokens)
        loss.backward()
        update()

    steps.run(step, arguments)


if __name__ == "__main__":
    main()
