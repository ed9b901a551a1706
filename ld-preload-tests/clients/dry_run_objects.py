"""Processes send each other Python objects of all sizes through NCCL: dry_run_objects.py.

Each process names the functions whose objects did not arrive as they were sent; the first also prints its peak.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def thing(rank):
    """Something else for each rank, as large as its data say."""
    return {"rank": rank, "words": ["w" * number for number in range(20 * rank)], "bytes": bytes(50_000 * rank + 1)}


def gather_all(rank, world):
    told = [None] * world
    dist.all_gather_object(told, thing(rank))
    return told == [thing(number) for number in range(world)]


def gather(rank, world):
    told = [None] * world if rank == 0 else None
    dist.gather_object(thing(rank), told)
    return rank != 0 or told == [thing(number) for number in range(world)]


def broadcast(rank, world):
    sent = [thing(3), "text", None, 1.5]
    told = sent if rank == 0 else [None] * 4
    dist.broadcast_object_list(told)
    return told == sent


def scatter(rank, world):
    told = [None]
    dist.scatter_object_list(told, [thing(number + 1) for number in range(world)] if rank == 0 else None)
    return told == [thing(rank + 1)]


def one_to_one(rank, world):
    sent = [thing(2), "text"]
    if rank == 0:
        dist.send_object_list(sent, dst=1)
    told = [None] * 2
    if rank == 1:
        dist.recv_object_list(told, src=0)
    return rank != 1 or told == sent


def large(rank, world):
    told = [None] * world
    dist.all_gather_object(told, bytes([rank]) * (5 << 20))
    return told == [bytes([number]) * (5 << 20) for number in range(world)]


def after_kernels(rank, world):
    """What was sent before is not taken for what is sent now."""
    for round in range(3):
        x = torch.randn(64, 64, device="cuda")
        for _ in range(100):
            x = x * 2
        told = [None] * world
        dist.all_gather_object(told, (rank, round))
        if told != [(number, round) for number in range(world)]:
            return False
    return True


def work(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    for check in (gather_all, gather, broadcast, scatter, one_to_one, large, after_kernels):
        try:
            problem = "" if check(rank, world) else "other objects"
        except Exception as error:
            problem = "%s %s" % (type(error).__name__, error)
        if problem:
            os.write(1, ("rank %d %s: %s\n" % (rank, check.__name__, problem)).encode())
    if rank == 0:
        os.write(1, b"peak %d\n" % torch.cuda.max_memory_allocated())
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = torch.cuda.device_count()
    mp.spawn(work, (world, port), nprocs=world)
