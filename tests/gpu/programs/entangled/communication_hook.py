"""DistributedDataParallel with a communication hook that launches a kernel in autograd's thread."""

import os

import states
import torch
import torch.distributed as distributed


def hook(state, bucket):
    state.append(bucket.index())
    scaled = states.scale(bucket.buffer(), 0.5)
    future = torch.futures.Future(devices=[torch.device("cuda", 0)])
    future.set_result(scaled)
    return future


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    torch.cuda.set_device(0)
    store = distributed.HashStore()
    distributed.init_process_group("nccl", rank=0, world_size=1, store=store)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    called = []
    model.register_comm_hook(called, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        loss = model(torch.randn(64, 512, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    states.show(loss=loss, called=called, weights=list(model.parameters()))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
