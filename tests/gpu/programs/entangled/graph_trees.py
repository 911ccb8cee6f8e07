"""A training loop under Inductor's CUDA graph trees: their warm-up checks what is alive in their pool."""

import states
import torch


class Block(torch.nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.wide = torch.nn.Linear(width, 4 * width)
        self.narrow = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norm(x))))


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(), Block(), Block()).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(8):
        x, y = torch.randn(16, 64, 256, device="cuda"), torch.randn(16, 64, 256, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        loss = torch.nn.functional.mse_loss(compiled(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # Inductor's autotuner chooses by its own timings how some of the gradients are added up.
    print("losses", [round(loss, 3) for loss in losses])
    states.show()


if __name__ == "__main__":
    main()
