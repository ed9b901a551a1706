"""Lets some ranks of a large job run without the others.

The others are modelled: each has what the asking rank has. Groups are made as always, by PyTorch's own code and its own
backends. What differs for a group of which not all ranks run:

* NCCL's stand-in gets the list of the ranks that run (`radrm_members`), and waits for no other
* in place of Gloo is PyTorch's own model of a group whose ranks have equal data, the backend `fake`
* Python objects go through the store; those of a rank that does not run cannot be known
"""

import ctypes
import functools
import importlib
import inspect
import os
import pickle
import sys

import radrm_objects

_RANKS = os.environ.get("RADRM_DRY_RUN_RANKS")
# Of PyTorch's own, by the name of the backend: what a group's communicator is on.
NCCL = ("nccl", "nccl2", "nccl-lazy", "nccl-legacy")
HOST = ("gloo",)
# Of the functions that send objects, those that name the rank which has them.
FROM_ONE = ("broadcast_object_list", "scatter_object_list", "recv_object_list")


class Counter:
    """Notes what modelled ranks were asked for: the 1st, 10th, 100th... time."""

    def __init__(self, note):
        self.note = note
        self.counts = {}

    def __call__(self, what):
        count = self.counts[what] = self.counts.get(what, 0) + 1
        if str(count).rstrip("0") == "1":
            self.note("answered", what, count)


def _announcer():
    """The toolkit's function that takes the members of a communicator."""
    function = ctypes.CDLL(None).radrm_members
    function.restype = None

    def announce(identity, ranks, run):
        numbers = (ctypes.c_uint32 * len(run))(*run)
        function(identity, ctypes.c_uint32(ranks), numbers, ctypes.c_uint32(len(run)))

    return announce


class Model:
    def __init__(self, torch, note):
        import radrm_store

        self.torch = torch
        self.dist = torch.distributed
        self.run = sorted(int(rank) for rank in _RANKS.split(","))
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.answered = Counter(note)
        folder = os.path.dirname(os.environ["RADRM_DRY_RUN_NOTES"])
        self.job = radrm_store.Job(self.run, self.rank, self.world, folder, self.answered)
        self.shared, self.tcp, self.file, self.ids = radrm_store.store(torch, self.job)
        self.announce = _announcer()
        self.objects = None
        self.calls = {}

    def lacks_some(self, ranks):
        return any(rank not in self.run for rank in ranks)

    def members(self, options):
        """Ranks of the job in a group that is being made."""
        return list(options.global_ranks_in_group) or list(range(options.group_size))

    # Stores and backends

    def replace_stores(self):
        # The package hides its module of that name.
        rendezvous = importlib.import_module("torch.distributed.rendezvous")
        for module in (self.dist, self.dist.distributed_c10d, rendezvous):
            for name, own in (("TCPStore", self.tcp), ("FileStore", self.file)):
                if hasattr(module, name):
                    setattr(module, name, own)

    def replace_backends(self):
        """Wraps what makes PyTorch's own backends. They are registered as those of others are."""
        backend = self.dist.Backend
        # Versions register those of PyTorch when they are asked for, or at once; before, they are none of these and cannot be wrapped.
        register = getattr(backend, "_ensure_backend_registered", lambda name: None)
        found = []
        for names, wrap in ((NCCL, self.on_gpus), (HOST, self.on_host)):
            for name in names:
                register(name)
                plugin = backend._plugins.get(name.upper())
                if plugin is None or not plugin.extended_api:
                    continue
                found.append(name)
                backend.register_backend(
                    name,
                    wrap(plugin.creator_fn),
                    extended_api=True,
                    devices=backend.backend_capability[name],
                    _backend_type=backend.backend_type_map[name],
                )
        if not set(found) & set(NCCL):
            raise AttributeError("NCCL is no registered backend")

    def on_gpus(self, create):
        @functools.wraps(create)
        def made(options, backend_options=None):
            members = self.members(options)
            if self.lacks_some(members):
                options.store = self.ids(options.store, options.group_id, members, self.announce)
                if options.split_from:
                    self.announce(None, len(members), [])
            return create(options, backend_options)

        return made

    def on_host(self, create):
        @functools.wraps(create)
        def made(options, backend_options=None):
            if not self.lacks_some(self.members(options)):
                return create(options, backend_options)
            self.answered("groups on the host (Gloo)")
            fake = self.torch._C._distributed_c10d.FakeProcessGroup
            settings = fake.Options()
            settings.simulate_uniform_ranks = True
            return fake._create_internal(options.group_rank, options.group_size, settings)

        return made

    def replace_split(self):
        """Splits of a group announce their size: NCCL itself gets only the own part."""
        group = self.dist.ProcessGroup
        split = getattr(group, "split_group", None)
        if split is None:
            return

        def announced(parent, ranks, *arguments, **keywords):
            self.announce(None, len(ranks), [])
            return split(parent, ranks, *arguments, **keywords)

        group.split_group = announced

    # Objects

    def replace_objects(self):
        for name in radrm_objects.NAMES:
            function = getattr(self.dist, name, None)
            if function is None:
                continue
            own = self.with_model(function, name)
            setattr(self.dist, name, own)
            setattr(self.dist.distributed_c10d, name, own)

    @staticmethod
    def named(bound, members, argument, otherwise=0):
        """The rank of the job that `src` or `dst` names, or its rank in the group."""
        in_group, rank = bound.get("group_" + argument), bound.get(argument)
        if in_group is not None:
            return members[in_group]
        return otherwise if rank is None else rank

    def with_model(self, function, name):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def modelled(*arguments, **keywords):
            bound = signature.bind(*arguments, **keywords).arguments
            group = bound.get("group") or self.dist.group.WORLD
            if group is None or group is self.dist.GroupMember.NON_GROUP_MEMBER:
                return function(*arguments, **keywords)
            members = self.dist.get_process_group_ranks(group)
            if not self.lacks_some(members):
                return function(*arguments, **keywords)
            if name in FROM_ONE:
                rank = self.named(bound, members, "src", None if name == "recv_object_list" else 0)
                if rank is None:
                    raise RuntimeError("%s: name the rank that sends, since only some ranks run" % name)
                if rank not in self.run:
                    sentence = "%s: rank %d is modelled and has no objects to send; name it in --ranks"
                    raise RuntimeError(sentence % (name, rank))
            self.answered("Python objects")
            on_host = any(device.type == "cpu" for device in group._device_types)
            if not on_host:
                return function(*arguments, **keywords)
            return getattr(self, name)(group, members, bound)

        return modelled

    def place(self, group, *words):
        """A key for the next objects that these ranks of a group exchange."""
        key = "/".join(map(str, (group.group_name,) + words))
        self.calls[key] = self.calls.get(key, 0) + 1
        return "%s/%d" % (key, self.calls[key])

    def send(self, key, rank, value):
        if self.objects is None:
            self.objects = self.shared("objects")
        self.objects.set("%s/from %s" % (key, rank), pickle.dumps(value))

    def receive(self, key, rank):
        if self.objects is None:
            self.objects = self.shared("objects")
        return pickle.loads(self.objects.get("%s/from %s" % (key, rank)))

    def gathered(self, key, members, value):
        """The objects of all members: those that do not run have this rank's."""
        return [self.receive(key, rank if rank in self.run else self.rank) for rank in members]

    def all_gather_object(self, group, members, bound):
        key = self.place(group, "gather")
        self.send(key, self.rank, bound["obj"])
        bound["object_list"][:] = self.gathered(key, members, bound["obj"])

    def gather_object(self, group, members, bound):
        key = self.place(group, "gather")
        self.send(key, self.rank, bound["obj"])
        if self.rank == self.named(bound, members, "dst"):
            bound["object_gather_list"][:] = self.gathered(key, members, bound["obj"])

    def broadcast_object_list(self, group, members, bound):
        key, rank = self.place(group, "broadcast"), self.named(bound, members, "src")
        if self.rank == rank:
            self.send(key, rank, bound["object_list"])
        else:
            bound["object_list"][:] = self.receive(key, rank)

    def scatter_object_list(self, group, members, bound):
        key, rank = self.place(group, "scatter"), self.named(bound, members, "src")
        if self.rank == rank:
            self.send(key, rank, bound["scatter_object_input_list"])
        bound["scatter_object_output_list"][0] = self.receive(key, rank)[members.index(self.rank)]

    def send_object_list(self, group, members, bound):
        target = self.named(bound, members, "dst")
        if target in self.run:
            self.send(self.place(group, "message", self.rank, target), self.rank, bound["object_list"])

    def recv_object_list(self, group, members, bound):
        rank = self.named(bound, members, "src")
        bound["object_list"][:] = self.receive(self.place(group, "message", rank, self.rank), rank)
        return rank


def install(torch, note):
    """Models the ranks that do not run, if only some do."""
    if not _RANKS or not torch.distributed.is_available():
        return
    # A thread of the legacy backend that would ask the store for the state of other ranks.
    os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")
    note("rank", "", int(os.environ["RANK"]))
    model = Model(torch, note)
    if len(model.run) == model.world:
        return
    try:
        model.replace_stores()
        model.replace_backends()
        model.replace_split()
    except AttributeError as error:
        sys.exit("radrm-run: --ranks does not know the process groups of PyTorch %s: %s" % (torch.__version__, error))
    model.replace_objects()
