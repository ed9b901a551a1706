"""One rank of a job: dry_run_ranks.py MODE. Its process is started by `radrm-run --ranks` or by torchrun.

Modes: ddp, fsdp, tensor, pipeline (training steps); barrier, store, objects, broadcast (what ranks tell each other).
Prints `rank N allocated A reserved R` at the end.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

RANK, WORLD, LOCAL = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
WIDTH = 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def train(model, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(steps):
        x = torch.randn(32, WIDTH, device="cuda")
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def ddp():
    model = nn.Sequential(*[Block() for _ in range(4)]).cuda()
    train(nn.parallel.DistributedDataParallel(model, device_ids=[LOCAL]))


def fsdp():
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = nn.Sequential(*[Block() for _ in range(4)])
    for block in model:
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cuda")
    train(model)


def tensor():
    """Tensor parallel in pairs, data parallel between them."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (WORLD // 2, 2), mesh_dim_names=("data", "tensor"))
    model = nn.Sequential(*[Block() for _ in range(4)]).cuda()
    for block in model:
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    train(model)


def pipeline():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    # The first stage has more to hold than the last.
    model = nn.Sequential(*[Block() for _ in range(1 + (RANK == 0))]).cuda()
    device = torch.device("cuda", LOCAL)
    # Without them stages would tell each other shapes, as objects.
    taken = torch.randn(8, WIDTH, device="meta", requires_grad=RANK > 0)
    given = torch.randn(8, WIDTH, device="meta", requires_grad=True)
    stage = PipelineStage(model, RANK, WORLD, device, input_args=(taken,), output_args=(given,))
    schedule = Schedule1F1B(stage, 2 * WORLD, loss_fn=lambda out, target: (out - target).square().mean())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    batch = torch.randn(16 * WORLD, WIDTH, device=device)
    for _ in range(3):
        if RANK == 0:
            schedule.step(batch)
        elif RANK == WORLD - 1:
            schedule.step(target=batch)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()


def barrier():
    dist.barrier()
    part = dist.new_group([0, WORLD - 1])
    other = dist.new_group([1, 2])
    if RANK in (0, WORLD - 1):
        dist.barrier(group=part)
    elif RANK in (1, 2):
        dist.barrier(group=other)
    host = dist.new_group(backend="gloo")
    dist.barrier(group=host)
    # Counts, and each rank's own number where it runs.
    counter = torch.tensor([1.0], device="cuda")
    dist.all_reduce(counter)
    assert counter.item() == WORLD, counter
    told = [torch.zeros(1, device="cuda") for _ in range(WORLD)]
    dist.all_gather(told, torch.tensor([float(RANK)], device="cuda"))
    ran = [int(rank) for rank in os.environ.get("RADRM_DRY_RUN_RANKS", "").split(",") if rank] or range(WORLD)
    assert [number for number in ran if told[number].item() != number] == [], told


def store():
    """The store as elastic agents and launchers use it."""
    from torch.distributed.elastic.utils.store import barrier as store_barrier, synchronize

    shared = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), WORLD, RANK == 0)
    store_barrier(shared, WORLD, "here")
    own = b"of %d" % RANK
    told = synchronize(shared, own, RANK, WORLD, "told", 60)
    assert told[RANK] == own and len(told) == WORLD, told
    if RANK == 0:
        shared.set("first", "x")
    assert shared.get("first") == b"x"
    # A key of a rank that may not run.
    if RANK == 1:
        shared.set("ready", "x")
    shared.wait(["ready"])


def objects():
    told = [None] * WORLD
    dist.all_gather_object(told, ("rank", RANK))
    ran = [int(rank) for rank in os.environ.get("RADRM_DRY_RUN_RANKS", "").split(",") if rank] or range(WORLD)
    assert told == [("rank", rank if rank in ran else RANK) for rank in range(WORLD)], told
    sent = ["a", {"b": 1}] if RANK == 0 else [None, None]
    dist.broadcast_object_list(sent)
    assert sent == ["a", {"b": 1}], sent
    told = [None]
    dist.scatter_object_list(told, [("for", rank) for rank in range(WORLD)] if RANK == 0 else None)
    assert told == [("for", RANK)], told


def broadcast():
    dist.broadcast_object_list([RANK], src=1)


if __name__ == "__main__":
    mode, *backend = sys.argv[1:]
    torch.cuda.set_device(LOCAL)
    if backend == ["bound"]:
        dist.init_process_group("nccl", device_id=torch.device("cuda", LOCAL))
    else:
        dist.init_process_group(*backend)
    globals()[mode]()
    torch.cuda.synchronize()
    figures = RANK, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    # One write for each process, so that lines do not mix.
    os.write(1, b"rank %d allocated %d reserved %d\n" % figures)
    dist.destroy_process_group()
