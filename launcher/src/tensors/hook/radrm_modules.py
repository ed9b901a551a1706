"""Which module of the model a thread is in, by the paths that `named_modules` gives."""

import threading
import weakref

# Walks through a model because of a module that was not there before: a program may make modules in each pass.
MAX_WALKS = 64

# Labels of requests for memory. Behind FORWARD stand the number of the outermost module and the path in it.
FORWARD = "radrm forward "
LOSS = "radrm loss"
OPTIMIZER = "radrm optimizer"
NONE = ""


def owner_of(label):
    """Number of the outermost module and path of the module that a label names."""
    if not label.startswith(FORWARD):
        return None
    number, _, path = label[len(FORWARD):].partition(" ")
    return int(number), path


class _Known:
    """A module whose path is known."""

    __slots__ = ("module", "root", "path", "label")

    def __init__(self, module, root, path):
        self.module = weakref.ref(module)
        self.root = root
        self.path = path
        self.label = "%s%d %s" % (FORWARD, root, path)

    def holds(self, other):
        """Whether the other module is a part of this one."""
        return self.root == other.root and other.path.startswith(self.path + "." if self.path else "")


class Modules:
    """The models of the program. `label` is called with the label of what the thread asks for next, `learned` with a model
    that is called for the first time, its number and its path, `called` with how a model is called the first time since
    `await_call`, `passed` when the outermost module was left, and `failed` with an error, which must not reach the program."""

    def __init__(self, torch, label, learned, called, passed, failed):
        self.torch = torch
        self.label = label
        self.learned = learned
        self.called = called
        self.passed = passed
        self.failed = failed
        self.known = {}
        self.roots = []
        self.classes = []
        # Of each outermost module, whether it has parameters.
        self.have_parameters = []
        # Models that turned out to be part of another: its number, and the path in it.
        self.parts = {}
        self.local = threading.local()
        self.walks = 0
        # Of threads of a backward pass, another number than -1.
        self.backward_pass = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self.register = torch.nn.modules.module
        self.is_stopped = self.is_resting = self.awaits_call = False
        self.undo = []
        self.wake()

    def stop(self):
        """Labels nothing any more."""
        self.is_stopped = True
        self.unhook()

    def unhook(self):
        while self.undo:
            self.undo.pop()()

    def wake(self):
        """Labels what comes."""
        self.is_resting = False
        self.unhook()
        if not self.is_stopped:
            self.undo = [
                self.register.register_module_forward_pre_hook(self.enter).remove,
                self.register.register_module_forward_hook(self.leave).remove,
            ]

    def rest(self):
        """Labels nothing until it wakes; only `called` is still called."""
        self.unhook()
        self.outside()
        self.is_resting = True

    def await_call(self):
        self.awaits_call = True
        # A hook makes the call of each module slower, so it is there only until one is called.
        if self.is_resting and not self.is_stopped and not self.undo:
            self.undo = [self.register.register_module_forward_pre_hook(self.enter_resting).remove]

    def enter_resting(self, module, arguments):
        known = self.known.get(id(module))
        if known is None or not known.path:
            try:
                self.unhook()
                self.call(module, known)
                if not self.is_resting:
                    self.enter(module, arguments)
            except Exception as error:
                self.failed(error)

    def call(self, module, known):
        if self.awaits_call:
            self.awaits_call = False
            root = known.root if known else len(self.roots)
            self.called(("model", root, module.training, self.torch.is_grad_enabled()))

    def stack(self):
        try:
            return self.local.stack
        except AttributeError:
            self.local.stack = []
            return self.local.stack

    def outside(self):
        """The thread is in no module and no step of an optimizer."""
        self.stack().clear()
        self.label(NONE)

    def step(self):
        """The thread is in a step of an optimizer: what an exception left of a forward pass is forgotten."""
        self.stack().clear()
        self.label(OPTIMIZER)

    def backward(self):
        """A backward pass begins. Inside a module it is part of what the module computes."""
        if not self.stack():
            self.label(NONE)

    def enter(self, module, arguments):
        try:
            stack = self.stack()
            known = self.known.get(id(module))
            if known is None or known.module() is not module:
                known = self.learn(module, stack)
            if not known.path:
                stack.clear()
                self.call(module, known)
            elif self.backward_pass() != -1:
                # A checkpoint ends what it computes again by an exception, which skips the hooks behind modules.
                while stack and not stack[-1].holds(known):
                    stack.pop()
            stack.append(known)
            self.label(known.label)
        except Exception as error:
            self.failed(error)

    def leave(self, module, arguments, output):
        try:
            stack = self.stack()
            while stack:
                if stack.pop().module() is module:
                    break
            if stack:
                self.label(stack[-1].label)
            else:
                # Until the backward pass begins, what is computed from the output belongs to the model.
                self.label(LOSS if self.torch.is_grad_enabled() else NONE)
                self.passed()
        except Exception as error:
            self.failed(error)

    def learn(self, module, stack):
        """A module that was not seen before."""
        if not stack:
            self.walk(module, len(self.roots))
            self.roots.append(weakref.ref(module))
            self.classes.append(type(module).__name__)
            self.have_parameters.append(next(module.parameters(), None) is not None)
            return self.known[id(module)]
        outermost = stack[0]
        if self.walks < MAX_WALKS and outermost.module() is not None:
            self.walks += 1
            self.walk(outermost.module(), outermost.root, outermost.path)
            known = self.known.get(id(module))
            if known is not None and known.module() is module:
                return known
        # No part of the model: what it does counts for the module that calls it.
        return _Known(module, stack[-1].root, stack[-1].path)

    def walk(self, module, root, prefix=""):
        for path, part in module.named_modules(prefix=prefix):
            before = self.known.get(id(part))
            if before and before.module() is part and not before.path and before.root != root:
                self.parts[before.root] = (root, path)
            self.known[id(part)] = _Known(part, root, path)
        self.learned(module, root, prefix)

    def outermost(self, owner):
        """An owner by the outermost module that is known now."""
        number, path = owner
        while number in self.parts:
            number, prefix = self.parts[number]
            path = ".".join(filter(None, (prefix, path)))
        return number, path

    def models(self):
        """The outermost modules by number, those that are still there and are not part of another."""
        models = {}
        for number, reference in enumerate(self.roots):
            module = reference()
            if module is not None and self.known[id(module)].root == number:
                models[number] = module
        return models

    def names(self):
        """Classes of all outermost modules by number. Models of one class, such as teacher and student, have a number besides; of losses
        and other functions a program may make new ones in each step."""
        names, models = {}, {}
        for number, name in enumerate(self.classes):
            if number not in self.parts and self.have_parameters[number]:
                models[name] = models.get(name, 0) + 1
                if models[name] > 1:
                    name = "%s #%d" % (name, models[name])
            names[number] = name
        return names
