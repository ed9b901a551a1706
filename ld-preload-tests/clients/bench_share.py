"""Throughput of trainings that load images: each with a loader of its own, with radrm.share, and with TensorSocket.

bench_share.py [ROUNDS] [SECONDS]: TensorSocket is measured where its package can be imported, once as its README uses it
("tensorsocket") and once with batches packed as handles of shared memory ("tensorsocket-handles"). The load of a sample is
an image that Pillow decodes, crops and scales; a training checks the shape of each batch and does nothing else. Each kind
ends after BEGIN + SECONDS + END seconds; a kind of which a training gets no batch in that time gets a row that says so.

bench_share.py latency: from the moment at which a batch of 4.6 MiB lies in its slot, and from the one at which the loader gave
it, to the one at which a consumer that waits has it; and the memory of the ring.
"""

import io
import os
import queue
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time

# Seconds until each training must have its first batch, and after the measurement until it must have printed its result.
BEGIN, END = 60, 20
SAMPLES, BATCH, TRAININGS, PORTS = 2048, 32, 4, (5755, 5756, 5757, 5758)


def loader(workers):
    import numpy
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)
    rng = numpy.random.default_rng(1)
    images = []
    for _ in range(16):
        small = rng.integers(0, 255, (40, 50, 3), dtype="u1")
        buffer = io.BytesIO()
        Image.fromarray(small).resize((500, 400), Image.Resampling.BILINEAR).save(buffer, "JPEG", quality=90)
        images.append(buffer.getvalue())

    class Images(Dataset):
        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            image = Image.open(io.BytesIO(images[index % len(images)])).convert("RGB")
            image = image.resize((224, 224), Image.Resampling.BILINEAR, box=(index % 50, index % 40, 450, 360))
            return torch.from_numpy(numpy.asarray(image).transpose(2, 0, 1).copy()), index

    return DataLoader(Images(), batch_size=BATCH, shuffle=True, num_workers=workers, drop_last=True)


def train(kind, seconds):
    """Prints the batches a second of so many seconds, from the first batch on."""
    if kind == "own":
        source = loader(1)
    elif kind == "radrm":
        from radrm.share import Consumer

        source = Consumer("bench")
    else:
        from tensorsocket import TensorConsumer

        options = {"unpack_fn": from_handles} if kind == "tensorsocket-handles" else {}
        source = TensorConsumer(port=PORTS[0], ack_port=PORTS[1], heart_ports=PORTS[2:], batch_size=BATCH, **options)

    def used():
        return sum(sum(resource.getrusage(of)[:2]) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) + workers()

    def workers():
        """Of processes below this one, which are not waited for."""
        children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
        return sum(cpu(int(child)) for child in children)

    count, begun, before, took = 0, None, 0, None
    while True:
        for images, labels in source:
            if begun is None:
                begun, before = time.monotonic(), used()
                print("begun", flush=True)
                continue
            assert int(images[0, 0, 0, 0]) >= 0 and labels.shape == (BATCH,)
            count += 1
            if took is None and time.monotonic() >= begun + seconds:
                took = time.monotonic() - begun
                print(count / took, count, used() - before, flush=True)
        # On until it is killed: the others are measured beside as many trainings. And TensorSocket's producer waits for
        # ever at the end of an epoch in which a consumer has ended.


def produce(kind):
    if kind == "radrm":
        from radrm.share import Producer

        Producer(loader(1), "bench", consumers=TRAININGS, resume=False).run()
    else:
        from tensorsocket import TensorProducer

        options = {"pack_fn": as_handles} if kind == "tensorsocket-handles" else {}
        producer = TensorProducer(loader(1), port=PORTS[0], ack_port=PORTS[1], heart_ports=PORTS[2:], **options)
        while True:
            for _ in producer:
                pass


def as_handles(tensors):
    """TensorSocket's pack_fn. Its own one pickles the bytes of a CPU tensor's storage: for each batch and consumer those of
    all 8 batches that it sends together, 1.2 GiB a message with 4 consumers."""
    from multiprocessing.reduction import ForkingPickler

    import torch.multiprocessing

    # The producer's pool keeps the memory. Descriptors, the other strategy, need a server in the producer.
    torch.multiprocessing.set_sharing_strategy("file_system")
    return bytes(ForkingPickler.dumps(tensors))


def from_handles(packed):
    import pickle

    import torch.multiprocessing  # noqa: F401

    return pickle.loads(packed)


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    # Its own, and of children that it has waited for.
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def tree(pid):
    """Processor time of a process and of those that it started."""
    children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    return cpu(pid) + sum(map(tree, map(int, children)))


class Training:
    """A process that prints lines, each of which is waited for until a given time only."""

    def __init__(self, kind, seconds):
        command = [sys.executable, __file__, "train", kind, str(seconds)]
        # A group of its own, which ends with its loader's workers.
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line.split())
        self._lines.put(None)

    def line(self, fits, until, failure):
        """The next line that fits; TimeoutError with these words if none comes."""
        while True:
            try:
                words = self._lines.get(timeout=max(0, until - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(failure) from None
            if words is None:
                raise TimeoutError(f"a training ended with {self.process.wait()}")
            if fits(words):
                return words


def is_result(words):
    try:
        return len([float(word) for word in words]) == 3
    except ValueError:
        return False


def measure(kind, trainings, seconds):
    """Samples a second of each training, and processor time of all for a sample of one training."""
    producer = None
    if kind != "own":
        command = [sys.executable, __file__, "produce", kind]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        producer = subprocess.Popen(command, start_new_session=True, **quiet)
        time.sleep(5)
    running = [Training(kind, seconds) for _ in range(trainings)]
    try:
        # Without the time that interpreters and PyTorch take to start.
        until = time.monotonic() + BEGIN
        for training in running:
            training.line(lambda words: words == ["begun"], until, f"gave no batch within {BEGIN} s")
        before = tree(producer.pid) if producer else 0
        until = time.monotonic() + seconds + END
        failure = f"gave no further batch within {seconds + END} s"
        outputs = [training.line(is_result, until, failure) for training in running]
        used = tree(producer.pid) - before if producer else 0
    finally:
        for process in [*(training.process for training in running), *([producer] if producer else [])]:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    rates = [float(rate) * BATCH for rate, _, _ in outputs]
    samples = statistics.mean(int(count) for _, count, _ in outputs) * BATCH
    return statistics.mean(rates), (used + sum(float(own) for *_, own in outputs)) / samples


def latency(batches=2000):
    """A producer that notes when the loader gave each batch and when it lay in its slot, and waits a little in between."""
    import mmap
    import struct

    import numpy

    from radrm.share import Consumer, Producer, _producer

    times = mmap.mmap(-1, 8 * batches)

    class Clock:
        def __iter__(self):
            data = numpy.zeros((32, 3, 224, 224), "u1")
            for _ in range(batches):
                time.sleep(0.002)
                yield {"data": data, "at": numpy.array([time.monotonic_ns()])}

    class Noting:
        """The library, with the time at which each batch is published."""

        def __init__(self, library):
            self._library, self._count = library, 0

        def __getattr__(self, name):
            return getattr(self._library, name)

        def radrm_share_publish(self, *arguments):
            struct.pack_into("<q", times, 8 * self._count, time.monotonic_ns())
            self._count += 1
            return self._library.radrm_share_publish(*arguments)

    if os.fork() == 0:
        _producer.library = Noting(_producer.library)
        producer = Producer(Clock(), "latency", epochs=1, resume=False)
        close = producer.close
        producer.close = lambda: (print(producer.stats(), flush=True), close())
        producer.run()
        os._exit(0)
    handed, whole = [], []
    number, batch, batches_of = 0, None, iter(Consumer("latency"))
    # Not by a loop's variable: the old batch, which goes when the new one takes its place, is not part of the way.
    while (new := next(batches_of, None)) is not None:
        now = time.monotonic_ns()
        batch = new
        handed.append(now - struct.unpack_from("<q", times, 8 * number)[0])
        whole.append(now - int(batch["at"][0]))
        number += 1
    os.wait()
    for what, of in (("the slot", handed), ("the loader", whole)):
        of.sort()
        parts = ", ".join(f"{name} {of[int(part * len(of))] / 1000:.1f}" for name, part in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99)))
        print(f"from {what} to the consumer, us: {parts}")


def main(rounds=3, seconds=8):
    kinds = ["own", "radrm"]
    try:
        import tensorsocket  # noqa: F401

        kinds += ["tensorsocket", "tensorsocket-handles"]
    except ImportError:
        print("without TensorSocket: it cannot be imported")
    results, failed = {}, {}
    for number in range(rounds):
        for kind, trainings in [("own", 1), *((kind, TRAININGS) for kind in kinds)]:
            # What has failed fails again, and takes a minute each time.
            if (kind, trainings) in failed:
                continue
            try:
                rate, used = measure(kind, trainings, seconds)
            except TimeoutError as error:
                failed[kind, trainings] = str(error)
                print(f"round {number}: {trainings} x {kind}: {error}", flush=True)
                continue
            results.setdefault((kind, trainings), []).append((rate, used))
            load = os.getloadavg()[0]
            print(f"round {number}: {trainings} x {kind}: {rate:.0f} samples/s each, {used * 1000:.2f} ms a sample, load {load:.1f}", flush=True)
    for (kind, trainings), of in results.items():
        rate, used = (statistics.median(values) for values in zip(*of))
        print(f"{trainings} x {kind}: {rate:.0f} samples/s each, {used * 1000:.2f} ms of processor time a sample")
    for (kind, trainings), why in failed.items():
        print(f"{trainings} x {kind}: {why}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2], float(sys.argv[3]))
    elif sys.argv[1:2] == ["produce"]:
        produce(sys.argv[2])
    elif sys.argv[1:2] == ["latency"]:
        latency()
    else:
        main(*map(int, sys.argv[1:]))
