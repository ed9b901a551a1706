"""The store of a job of which only some ranks run.

Ranks that run share a file. What the others would write is answered where it is asked for:

* a rank that does not run adds to a counter what the first rank that runs adds to it, at the same moment
* it has set under a key that ends with its number what this rank has set under its own
* it has set a key that all ranks that run wait for, with a value that is not known

Unique ids of communicators are answered by `Ids`, which knows the ranks of its group.
"""

import datetime
import hashlib
import os
import re
import time

# Between two looks at a key that is not there.
PAUSE = 0.01
# Looks between two checks of whether the other ranks wait too, and checks that have to agree.
LOOKS = 20
CHECKS = 3

# Bytes of `ncclUniqueId`.
ID = 128


class Job:
    """The ranks that run, and the folder that they share."""

    def __init__(self, run, rank, world, folder, answered):
        self.run = run
        self.rank = rank
        self.world = world
        self.folder = folder
        self.answered = answered
        self.waits = 0
        with open(os.path.join(folder, "pid-%d" % rank), "w") as file:
            file.write(str(os.getpid()))

    def _flag(self, rank):
        return os.path.join(self.folder, "waiting-%d" % rank)

    def waiting(self):
        """Says that this rank waits for others; the toolkit says so too while it waits."""
        self.waits += 1
        with open(self._flag(self.rank), "w") as file:
            file.write("store %d" % self.waits)

    def goes_on(self):
        try:
            os.unlink(self._flag(self.rank))
        except FileNotFoundError:
            pass

    def _state(self, rank):
        """What a rank waits in, "ended", or None if it is at work."""
        try:
            with open(self._flag(rank)) as file:
                return file.read() or None
        except OSError:
            pass
        try:
            with open(os.path.join(self.folder, "pid-%d" % rank)) as file:
                os.kill(int(file.read()), 0)
        except ProcessLookupError:
            return "ended"
        except (OSError, ValueError):
            pass
        return None

    def others(self):
        """What each other rank that runs waits in; None if one of them is at work."""
        states = tuple(self._state(rank) for rank in self.run if rank != self.rank)
        return None if None in states else states


def store(torch, job):
    """The class of stores that ranks of this job share, and the one for ids of communicators."""
    dist = torch.distributed
    error = getattr(dist, "DistStoreError", RuntimeError)
    # The package will have `File` under this name.
    file_store = dist.FileStore
    alive = []

    class Shared(dist.Store):
        def __init__(self, name):
            super().__init__()
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]
            self.file = file_store(os.path.join(job.folder, "store-" + digest), -1)
            self.time = datetime.timedelta(minutes=30)
            # C++ holds only its half of the object.
            alive.append(self)

        def set(self, key, value):
            self.file.set(key, value)

        def compare_set(self, key, expected, desired):
            return self.file.compare_set(key, expected, desired)

        def add(self, key, amount):
            if amount and job.rank == job.run[0]:
                job.answered("counters in the store")
                amount *= 1 + job.world - len(job.run)
            return self.file.add(key, amount)

        def check(self, keys):
            return self.file.check(keys)

        def delete_key(self, key):
            return self.file.delete_key(key)

        def num_keys(self):
            return self.file.num_keys()

        def has_extended_api(self):
            return False

        def clone(self):
            return self

        def set_timeout(self, timeout):
            self.time = timeout

        def of_other_rank(self, key):
            """What this rank has set under such a key, if the key ends with the number of a rank that does not run."""
            match = re.fullmatch(r"(.*?)(\d+)", key, re.DOTALL)
            if match is None or int(match[2]) in job.run or int(match[2]) >= job.world:
                return None
            own = match[1] + str(job.rank)
            return own if self.file.check([own]) else None

        def wait(self, keys, timeout=None):
            end = time.monotonic() + (timeout or self.time).total_seconds()
            for key in keys:
                self.wait_for(key, end)

        def wait_for(self, key, end):
            """Waits until the key is there; or until it is clear that no rank that runs will set it."""
            looks, agreed, before = 0, 0, None
            try:
                while not self.file.check([key]) and self.of_other_rank(key) is None:
                    if time.monotonic() > end:
                        raise error("no rank set the key %s in time" % key)
                    looks += 1
                    if looks % LOOKS == 0:
                        if looks == LOOKS:
                            job.waiting()
                        now = job.others()
                        agreed = agreed + 1 if now is not None and now == before else 0
                        before = now
                        if agreed >= CHECKS:
                            job.answered("keys in the store")
                            return
                    time.sleep(PAUSE)
            finally:
                if looks >= LOOKS:
                    job.goes_on()

        def get(self, key):
            self.wait([key])
            if self.file.check([key]):
                return self.file.get(key)
            own = self.of_other_rank(key)
            if own is None:
                raise error("the key %s is set by a rank that does not run: name that rank in --ranks" % key)
            job.answered("keys in the store")
            return self.file.get(own)

        def multi_get(self, keys):
            return [self.get(key) for key in keys]

        def multi_set(self, keys, values):
            for key, value in zip(keys, values):
                self.set(key, value)

    class Tcp(Shared):
        """In place of a server: nothing listens."""

        def __init__(
            self,
            host_name,
            port,
            world_size=None,
            is_master=False,
            timeout=datetime.timedelta(minutes=30),
            wait_for_workers=True,
            multi_tenant=False,
            master_listen_fd=None,
            use_libuv=True,
        ):
            super().__init__("%s:%s" % (host_name, port))
            self.host, self.port, self.time = host_name, port, timeout

    class File(Shared):
        def __init__(self, file_name, world_size=-1):
            super().__init__(os.path.abspath(file_name))

    class Ids(dist.Store):
        """The store of a group's communicator: an id of a rank that does not run is made up here."""

        def __init__(self, base, name, members, announce):
            super().__init__()
            self.base, self.name, self.members, self.announce = base, name, members, announce
            alive.append(self)

        def sharers(self, key):
            """The ranks of the communicator whose id has this key, the one that sets it first; None for other keys."""
            last = key.rsplit("/", 1)[-1]
            pair = re.fullmatch(r"(\d+):(\d+)", last)
            if pair:
                return [self.members[int(number)] for number in pair.groups()]
            return self.members if re.fullmatch(r"\d+|nccl_storekey_\d+", last) else None

        def known(self, key, value):
            ranks = self.sharers(key)
            if ranks is not None and len(value) == ID:
                self.announce(bytes(value), len(ranks), [at for at, rank in enumerate(ranks) if rank in job.run])
            return value

        def made_up(self, key):
            """The id, if no rank that runs sets it: the same for all ranks of the communicator."""
            ranks = self.sharers(key)
            if ranks is None or ranks[0] in job.run:
                return None
            job.answered("ids of communicators (NCCL)")
            text = "%s %s %s" % (self.name, self.members, key)
            return hashlib.sha256(text.encode()).digest().ljust(ID, b"\0")

        def set(self, key, value):
            self.base.set(key, self.known(key, value))

        def get(self, key):
            value = self.made_up(key)
            return self.known(key, self.base.get(key) if value is None else value)

        def multi_get(self, keys):
            return [self.get(key) for key in keys]

        def wait(self, keys, timeout=None):
            keys = [key for key in keys if self.made_up(key) is None]
            if keys:
                self.base.wait(keys, *([] if timeout is None else [timeout]))

        def add(self, key, amount):
            return self.base.add(key, amount)

        def check(self, keys):
            return self.base.check([key for key in keys if self.made_up(key) is None])

        def compare_set(self, key, expected, desired):
            return self.base.compare_set(key, expected, desired)

        def delete_key(self, key):
            return self.base.delete_key(key)

        def num_keys(self):
            return self.base.num_keys()

        def has_extended_api(self):
            return False

        def set_timeout(self, timeout):
            self.base.set_timeout(timeout)

        def clone(self):
            return self

    return Shared, Tcp, File, Ids
