"""``torch.cuda.make_graphed_callables`` over a module whose forward and backward pass launch Triton kernels."""

import states
import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return states.scale(x, 2.0)

    @staticmethod
    def backward(ctx, gradient):
        return states.scale(gradient.contiguous(), 0.5)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(256, 256)

    def forward(self, x):
        return Scale.apply(self.linear(x))


def main():
    torch.manual_seed(0)
    blocks = torch.nn.Sequential(Block(), Block()).cuda()
    sample = (torch.randn(64, 256, device="cuda", requires_grad=True),)
    graphed = torch.cuda.make_graphed_callables(blocks, sample)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.01)
    for _ in range(6):
        x = torch.randn(64, 256, device="cuda")
        loss = graphed(x).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    states.show(loss=loss, weights=list(blocks.parameters()))


if __name__ == "__main__":
    main()
