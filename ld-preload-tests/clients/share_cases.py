"""Cases of radrm.share that need no second program: share_cases.py CASE..."""

import array
import collections
import fcntl
import gc
import os
import random
import socket
import struct
import sys
import threading
import time
import warnings

import numpy
from radrm import share
from radrm.share import Consumer, Producer
from share_rig import Numbers, Running, all_of, raises

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


@case
def structures():
    values = [
        {"a": [1, -(2**63), 2**200, -(2**200)], "b": (None, True, False), 3: {}, (1, "x"): []},
        [1.5, float("inf"), 2j, "ü\0", "", b"\0\xff", bytearray(b"x")],
        numpy.arange(24, dtype=">i4").reshape(2, 3, 4)[:, ::2],
        numpy.array(7.5),
        numpy.float32(3),
        numpy.zeros((0, 5)),
        numpy.array(["ab", "ü"]),
        numpy.array([b"ab", b"c"]),
        numpy.array(["2026-01-02", "NaT"], "M8[ns]"),
        numpy.array([True, False]),
        numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
    ]
    for kind in "bhilqBHILQefdFD":
        values.append(numpy.arange(3).astype(kind))
    with Running([values], epochs=1):
        loader = Consumer("case")
        for batch in loader:
            assert type(batch) is list and len(batch) == len(values)
            for value, got in zip(values, batch):
                if isinstance(value, (numpy.ndarray, numpy.generic)):
                    numpy.testing.assert_array_equal(got, value)
                    assert got.shape == value.shape and got.dtype == value.dtype.newbyteorder("<")
                elif type(value) is dict:
                    assert got == value and list(got) == list(value)
                else:
                    assert got == [bytes(item) if type(item) is bytearray else item for item in value], got
        del batch, got


@case
def what_has_no_form_is_refused_with_its_path():
    for value, path in [({"x": [object()]}, "batch['x'][0]"), (numpy.array([None]), "batch"), ({frozenset(): 1}, "batch")]:
        with Running([value], epochs=1) as running:
            loader = Consumer("case")
            error = raises(share.LoaderFailed, lambda: next(iter(loader)))
            assert path in str(error), error
            loader.close()
        assert isinstance(running.error, share.NotShareable), running.error


class Named(dict):
    pass


class Renamed(collections.UserDict):
    pass


@case
def dictionaries_keep_their_classes():
    value = [
        collections.OrderedDict(b=numpy.zeros(4), a=1),
        Named(x=numpy.arange(4)),
        Renamed({"y": numpy.arange(4)}),
    ]
    with Running([value], epochs=1, consumers=3):
        known, unknown, halves = (
            Consumer("case", types=[Named, Renamed]),
            Consumer("case"),
            Consumer("case", types=[Named, Renamed], batch_size=2),
        )
        ordered, named, renamed = next(iter(known))
        assert type(ordered) is collections.OrderedDict and list(ordered) == ["b", "a"] and ordered["a"] == 1
        assert type(named) is Named and named["x"].tolist() == [0, 1, 2, 3]
        assert type(renamed) is Renamed and renamed["y"].tolist() == [0, 1, 2, 3]
        ordered, named, renamed = next(iter(unknown))
        assert type(ordered) is collections.OrderedDict
        for got, name in ((named, "Named"), (renamed, "Renamed")):
            assert isinstance(got, dict) and type(got) is not dict and type(got).__name__ == name, type(got)
        ordered, named, renamed = next(iter(halves))
        assert (type(ordered), type(named), type(renamed)) == (collections.OrderedDict, Named, Renamed)
        assert named["x"].tolist() == renamed["y"].tolist() == [0, 1]
        del ordered, named, renamed, got
        for loader in (known, unknown, halves):
            loader.close()


@case
def what_would_lose_its_type_is_refused():
    class Text(str):
        pass

    values = [
        (numpy.ma.masked_array([1, 2], mask=[0, 1]), "mask"),
        (numpy.matrix([[1]]), "plain array"),
        (Text("x"), "plain str"),
    ]
    for value, reason in values:
        with Running([{"x": value}], epochs=1) as running:
            loader = Consumer("case")
            error = raises(share.LoaderFailed, lambda: next(iter(loader)))
            assert "batch['x']" in str(error) and reason in str(error), error
            loader.close()
        assert isinstance(running.error, share.NotShareable), running.error


@case
def epochs_are_as_of_a_loader():
    with Running(Numbers(5, last=2), epochs=4):
        loader = Consumer("case")
        assert len(loader) == 5
        assert all_of(loader) == list(range(18)) and loader.epoch == 0
        for batch in loader:
            break
        del batch
        # What was broken off does not come again.
        assert all_of(loader) == list(range(18)) and loader.epoch == 2
        assert [(epoch, len(list(map(len, loader)))) for epoch in loader.epochs()] == [(3, 5)]
        raises(share.ProducerEnded, lambda: next(iter(loader)))


@case
def batches_of_other_sizes():
    sizes = [None, 1, 2, 3, 4, 5, 7, 12, 13, 100]
    with Running(Numbers(10, last=2), epochs=2, consumers=2 * len(sizes)):
        loaders = [(size, drop, Consumer("case", batch_size=size, drop_last=drop)) for size in sizes for drop in (0, 1)]

        def check(size, drop, loader):
            for _ in range(2):
                batches = [batch.tolist() for batch in loader]
                if size is None:
                    assert batches == [list(range(4 * at, min(4 * at + 4, 38))) for at in range(10)]
                    continue
                expected = [list(range(at, min(at + size, 38))) for at in range(0, 38, size)]
                assert batches == [batch for batch in expected if len(batch) == size or not drop], (size, batches)

        failed = []

        def guarded(*arguments):
            try:
                check(*arguments)
            except BaseException as error:  # noqa: BLE001
                failed.append(error)
            finally:
                arguments[2].close()

        threads = [threading.Thread(target=guarded, args=of) for of in loaders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed


@case
def batches_are_read_in_place():
    class One:
        def __iter__(self):
            yield {"x": numpy.arange(8).reshape(4, 2)}

    with Running(One(), epochs=1):
        loader = Consumer("case", batch_size=2)
        halves = list(loader)
        base = [half["x"].__array_interface__["data"][0] for half in halves]
        assert base[1] - base[0] == halves[0]["x"].nbytes, "halves of one slot"
        held = loader._core.welcome().leases
        assert held == 1, held
        del halves
        assert loader._core.welcome().leases == 0, "released with the last array"


@case
def batches_that_are_kept_do_not_change():
    with Running(Numbers(40), epochs=1, ring=3):
        loader = Consumer("case")
        kept = list(loader)
        assert [batch[0] for batch in kept] == list(range(0, 160, 4)), "more batches than the ring has"


@case
def slow_consumers_miss_batches_or_get_them_from_disk():
    for slow in ("drop", "spill"):
        with Running(Numbers(50), epochs=1, consumers=2, ring=3) as running:
            quick, late = Consumer("case"), Consumer("case", slow=slow)
            first = iter(late)
            got = next(first).tolist()
            # The other one is not held up.
            assert all_of(quick) == list(range(200))
            stats = running.producer.stats()
            # What a consumer may lease and one, and one for the slow one.
            assert stats["slots"] <= 4 + 1, stats
            quick.close()
            got += [number for batch in first for number in batch.tolist()]
            if slow == "spill":
                assert got == list(range(200)) and late.dropped == 0 and stats["spilled"] > 30, (got, stats)
            else:
                assert got[-1] == 199 and late.dropped > 30, (got, late.dropped)
                assert len(got) == 4 * (50 - late.dropped)
            late.close()


@case
def a_late_consumer_begins_with_an_epoch_or_now():
    with Running(Numbers(20), epochs=3, ring=3):
        first = Consumer("case")
        batches = iter(first)
        for _ in range(10):
            next(batches)
        whole, now = Consumer("case"), Consumer("case", start="now")
        results = {}
        threads = [
            threading.Thread(target=lambda: results.update(first=[len(list(batches)), all_of(first), all_of(first)])),
            threading.Thread(target=lambda: results.update(whole=[all_of(whole), all_of(whole)])),
            threading.Thread(target=lambda: results.update(now=[all_of(now), all_of(now), all_of(now)])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        complete = list(range(80))
        assert results["first"] == [10, complete, complete]
        assert results["whole"] == [complete, complete]
        begun, *others = results["now"]
        assert begun and begun == list(range(begun[0], 80)) and begun[0] > 0 and others == [complete, complete]
        for loader in (first, whole, now):
            loader.close()


@case
def a_state_continues_with_the_first_sample_that_was_not_handed_out():
    with Running(Numbers(10), epochs=1, consumers=2):
        holder, loader = Consumer("case"), Consumer("case", batch_size=3)
        held = iter(holder)
        # Holds the ring's batches.
        next(held)
        batches = iter(loader)
        got = [number for _ in range(3) for number in next(batches).tolist()]
        state = loader.state_dict()
        assert (state["index"], state["offset"]) == (2, 1), state
        loader.close()
        loader = Consumer("case", batch_size=3, start=state)
        rest = threading.Thread(target=lambda: [None for _ in held])
        rest.start()
        assert got + all_of(loader) == list(range(40))
        rest.join()


@case
def a_failure_of_the_loader_is_raised_on_both_sides():
    def failing():
        yield numpy.arange(3)
        raise ValueError("the disk is gone")

    with Running(failing(), epochs=1) as running:
        loader = Consumer("case")
        batches = iter(loader)
        next(batches)
        error = raises(share.LoaderFailed, lambda: next(batches))
        assert "ValueError: the disk is gone" in str(error)
        loader.close()
    assert isinstance(running.error, ValueError)


@case
def names_are_taken_and_found():
    error = raises(share.NoProducer, lambda: Consumer("case", timeout=0.1))
    assert "case" in str(error)
    with Producer(Numbers(1), "case"):
        raises(share.NameTaken, lambda: Producer(Numbers(1), "case"))
        child = os.fork()
        if child == 0:
            # A child that lives on keeps neither name nor connections.
            time.sleep(60)
            os._exit(0)
    Producer(Numbers(1), "case").close()
    os.kill(child, 9)
    os.waitpid(child, 0)
    raises(share.ShareError, lambda: Producer(Numbers(1), "../case"))


@case
def forked_children_release_nothing():
    with Running(Numbers(10), epochs=1):
        loader = Consumer("case")
        got = []
        for batch in loader:
            child = os.fork()
            if child == 0:
                del batch
                gc.collect()
                try:
                    next(iter(loader))
                except share.ShareError:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            got += batch.tolist()
        assert got == list(range(40))


def connect(name="case"):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"{os.environ['XDG_RUNTIME_DIR']}/radrm/share/{name}.sock")
    connection.settimeout(20)
    return connection


F_ADD_SEALS = 1033
HELLO = struct.pack("<BH16sBQQQBB", 1, 2, bytes(16), 0, 0, 0, 0, 0, 3)


@case
def malformed_messages_end_their_connection_only():
    with Running(Numbers(200), epochs=1) as running:
        loader = Consumer("case")
        batches = iter(loader)
        got = next(batches).tolist()
        packets = [
            b"\0",
            b"\xff" * 1000,
            b"x" * 5000,
            HELLO[:-1],
            HELLO + b"\0",
            HELLO[:-1] + b"\xff",
            struct.pack("<BQ", 3, 1),
            [HELLO, HELLO],
            [HELLO, struct.pack("<BQ", 3, 999)],
            [HELLO, b"\x09"],
        ]
        rng = random.Random(1)
        for _ in range(100):
            packet = bytearray(HELLO)
            for _ in range(rng.randrange(1, 4)):
                packet[rng.randrange(3)] = rng.randrange(256)
            if packet != HELLO:
                packets.append(bytes(packet))
        for packet in packets:
            with connect() as connection:
                for part in packet if isinstance(packet, list) else [packet]:
                    connection.send(part)
                try:
                    while connection.recv(2000):
                        pass
                except ConnectionResetError:
                    pass
            got += next(batches).tolist()
        # A descriptor where none belongs.
        with connect() as connection:
            rights = array.array("i", [0, 1])
            connection.sendmsg([HELLO], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            assert connection.recv(2000) == b""
        stats = running.producer.stats()
        assert stats["malformed"] > 20 and stats["consumers"] == 1, stats
        got += [number for batch in batches for number in batch.tolist()]
        assert got == list(range(800))


@case
def a_false_producer_cannot_harm_a_consumer():
    folder = f"{os.environ['XDG_RUNTIME_DIR']}/radrm/share"
    os.makedirs(folder, mode=0o700)
    os.chmod(os.path.dirname(folder), 0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{folder}/case.sock")
    listener.listen()
    welcome = struct.pack("<B16sQQB16s", 65, bytes(16), 1, 1, 1, bytes(16))
    sound = b"RSD1" + struct.pack("<BI1s", 7, 1, b"x")

    def region():
        memory = os.memfd_create("false", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, 4096)
        os.pwrite(memory, sound, 64)
        fcntl.fcntl(memory, F_ADD_SEALS, 1 | 2 | 4 | 16)
        return memory

    def batch(number=1, data=64, description=len(sound), gpu=0):
        return struct.pack("<B10Q", 69, 1, number, 0, 0, 0, 0, 0, data, description, gpu)

    announced = struct.pack("<BQQ", 67, 1, 4096)
    on_gpu = struct.pack("<BQQ", 74, 1, 4096)
    attacks = {
        "none": [(announced, region()), (batch(), None)],
        "unknown kind": [(b"\xee", None)],
        "no descriptor": [(announced, None)],
        "memory longer than the file": [(struct.pack("<BQQ", 67, 1, 8192), region())],
        "no memory": [(batch(), None)],
        "description outside": [(announced, region()), (batch(data=4090), None)],
        "description far outside": [(announced, region()), (batch(data=2**64 - 1), None)],
        "no description": [(announced, region()), (batch(data=0), None)],
        "cut description": [(announced, region()), (batch(description=8), None)],
        "long description": [(announced, region()), (batch(description=2**40), None)],
        "a welcome twice": [(welcome, None)],
        "a word to sleep on twice": [(welcome, region())],
        "memory on a GPU of a producer that has none": [(announced, region()), (on_gpu, region()), (batch(), None)],
        "no descriptor of memory on a GPU": [(announced, region()), (on_gpu, None), (batch(), None)],
        "data on a GPU that are not there": [(announced, region()), (batch(gpu=1), None)],
    }
    for what, packets in attacks.items():
        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(2000)
                connection.send(welcome)
                for packet, memory in packets:
                    rights = [] if memory is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", memory))]
                    connection.sendmsg([packet], rights)
                try:
                    connection.recv(2000)
                except ConnectionResetError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        attach = lambda: next(iter(Consumer("case")))  # noqa: E731
        if what == "none":
            # Without the attacks the packets are sound.
            assert attach() == "x"
        else:
            raises(share.ProtocolError, attach)
        gc.collect()
        thread.join()
    listener.close()


@case
def the_order_of_another_seed_is_refused():
    import torch

    class Dataset(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return index

    def made():
        return torch.utils.data.DataLoader(Dataset(), batch_size=4, shuffle=True)

    first = Running(made(), epochs=1, seed=1)
    loader = Consumer("case")
    batches = iter(loader)
    got = next(batches).tolist() + next(batches).tolist()
    state = loader.state_dict()
    got += [number for batch in batches for number in batch.tolist()]
    assert sorted(got) == list(range(40))
    first.thread.join()
    with Running(made(), epochs=1, seed=1):
        loader = Consumer("case", start=state)
        assert got[:8] + all_of(loader) == got, "the same seed gives the same order"
    with Running(made(), epochs=1, seed=2, consumers=2):
        holder = Consumer("case")
        error = raises(share.OrderChanged, lambda: next(iter(Consumer("case", start=state))))
        assert "order" in str(error)
        all_of(holder)


@case
def tensors_and_loaders_of_pytorch():
    import torch

    class Dataset(torch.utils.data.Dataset):
        def __len__(self):
            return 38

        def __getitem__(self, index):
            image = torch.full((3, 4, 5), index, dtype=torch.bfloat16)
            return {"image": image, "label": index, "name": f"n{index}", "pair": (image[0], float(index))}

    torch.set_num_threads(1)
    options = {"batch_size": 8, "shuffle": True, "num_workers": 2, "persistent_workers": True}
    source = torch.utils.data.DataLoader(Dataset(), **options)
    with Running(source, epochs=2, consumers=3):
        whole, odd, copy = Consumer("case"), Consumer("case", batch_size=5), Consumer("case", framework="numpy")
        assert len(whole) == 5 and len(odd) == 8
        orders = []
        results = {}

        def check(name, loader):
            seen = []
            for batch in loader:
                labels = batch["label"]
                assert batch["image"].dtype == torch.bfloat16 and batch["image"].shape == (len(labels), 3, 4, 5)
                assert (batch["image"].float() == labels[:, None, None, None]).all()
                assert batch["name"] == [f"n{label}" for label in labels.tolist()]
                assert (batch["pair"][1] == labels).all()
                batch["image"].mul_(0)
                seen += labels.tolist()
            results[name] = seen

        for _ in range(2):
            threads = [
                threading.Thread(target=check, args=("whole", whole)),
                threading.Thread(target=check, args=("odd", odd)),
                threading.Thread(target=lambda: results.update(copy=[n for b in copy for n in b["label"].tolist()])),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(results["whole"]) == list(range(38)), results
            assert results["whole"] == results["odd"] == results["copy"]
            orders.append(results["whole"])
        assert orders[0] != orders[1], "each epoch has its own order"
        for loader in (whole, odd, copy):
            loader.close()
    values = [
        torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        torch.arange(6).reshape(2, 3).t(),
        torch.arange(10)[::2],
        torch.tensor(3.5, requires_grad=True),
        torch.zeros(0, 3),
        torch.view_as_complex(torch.ones(3, 2)).conj(),
        torch.ones(2).expand(4, 2),
        torch.zeros(5, dtype=torch.float8_e4m3fn),
    ]
    with Running([values], epochs=1):
        loader = Consumer("case")
        for batch in loader:
            for value, got in zip(values, batch):
                assert value.shape == got.shape and value.dtype == got.dtype and not got.requires_grad
                assert value.dtype == torch.float8_e4m3fn or torch.equal(value.detach(), got)
            assert batch[0].is_contiguous(memory_format=torch.channels_last)
        del batch, got
    with Running([{"w": torch.nn.Parameter(torch.zeros(2))}], epochs=1) as running:
        loader = Consumer("case")
        error = raises(share.LoaderFailed, lambda: next(iter(loader)))
        assert "batch['w']: torch.nn.parameter.Parameter would become a plain tensor" in str(error), error
        loader.close()

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.arange(64.0))

    with Running(torch.utils.data.DataLoader(Stream(), batch_size=8), epochs=2):
        loader = Consumer("case")
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == [list(range(8 * n, 8 * n + 8)) for n in range(8)]
        loader.close()


if __name__ == "__main__":
    warnings.simplefilter("error", ResourceWarning)
    for name in sys.argv[1:] or CASES:
        CASES[name]()
        print("ok", name, flush=True)
