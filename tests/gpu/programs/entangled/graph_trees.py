"""A training loop under Inductor's CUDA graph trees, with a backward pass."""

import states
import torch


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 256)
    ).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 256, device="cuda"), torch.randn(64, 256, device="cuda")
    losses = []
    for _ in range(8):
        torch.compiler.cudagraph_mark_step_begin()
        loss = torch.nn.functional.mse_loss(compiled(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    states.show(losses=losses, weights=[one for one in model.parameters()])


if __name__ == "__main__":
    main()
