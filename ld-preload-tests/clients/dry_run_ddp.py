"""Data parallel training on all GPUs of the machine, one process each: dry_run_ddp.py [fsdp | symmetric].

With `symmetric`, a buffer of 4 MiB that every GPU sees instead of a model.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def symmetric_memory(rank):
    import torch.distributed._symmetric_memory as symmetric

    buffer = symmetric.empty(1 << 20, device="cuda")
    name = dist.group.WORLD.group_name
    handle = symmetric.rendezvous(buffer, name)
    assert handle.world_size == dist.get_world_size()
    torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)
    os.write(1, b"rank %d shares\n" % rank)


def work(rank, world, port, mode):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    if mode == "symmetric":
        return symmetric_memory(rank)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]).cuda()
    if mode == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(3):
        model(torch.randn(64, 2048, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    # What processes tell each other arrives.
    told = [torch.zeros(2, dtype=torch.long, device="cuda") for _ in range(world)]
    dist.all_gather(told, torch.tensor([rank, 7 * rank], device="cuda"))
    assert [t.tolist() for t in told] == [[number, 7 * number] for number in range(world)], told
    counter = torch.tensor([rank + 1], device="cuda")
    dist.all_reduce(counter)
    assert counter.item() == world * (world + 1) // 2, counter
    # One write for each process, so that lines do not mix.
    os.write(1, b"rank %d peak %.1f\n" % (rank, torch.cuda.max_memory_allocated() / 2**20))
    dist.destroy_process_group()


if __name__ == "__main__":
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = torch.cuda.device_count()
    mp.spawn(work, (world, port, (sys.argv[1:] or ["ddp"])[0]), nprocs=world)
