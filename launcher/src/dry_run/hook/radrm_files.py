"""What a program of a dry run saves and sends: files of zeros take no room, and nothing leaves the machine.

Tensors of an emulated GPU are zeros on the host, so a checkpoint is a file of zeros with some headers: they become holes.
"""

import concurrent.futures
import ctypes
import functools
import io
import os

# Pieces that become holes, bytes: a multiple of the blocks of file systems.
PIECE = 1 << 16
_ZEROS = bytes(PIECE)
# FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_PUNCH_HOLE = 3


class Sparse(io.FileIO):
    """A new file in which zeros are holes."""

    def __init__(self, path):
        super().__init__(path, "w")

    def write(self, data):
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view):
            # Pieces begin where blocks of the file do.
            piece = view[at : at + PIECE - self.tell() % PIECE]
            if len(piece) == PIECE and bytes(piece) == _ZEROS:
                self.seek(PIECE, os.SEEK_CUR)
                at += PIECE
            else:
                at += super().write(piece)
        return len(view)

    def close(self):
        if not self.closed:
            # A hole at the end has no length by itself.
            self.truncate(self.tell())
        super().close()


def dig(path):
    """Makes holes of the zeros of a file."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    with open(path, "r+b", buffering=0) as file:
        at = 0
        while True:
            piece = file.read(PIECE)
            if not piece:
                return
            if piece == _ZEROS:
                fallocate(file.fileno(), _PUNCH_HOLE, ctypes.c_long(at), ctypes.c_long(PIECE))
            at += len(piece)


def torch_saves(torch):
    """Called when PyTorch has been loaded."""
    original = torch.save

    @functools.wraps(original)
    def save(obj, f, *arguments, **keywords):
        if not isinstance(f, (str, os.PathLike)):
            return original(obj, f, *arguments, **keywords)
        try:
            file = Sparse(os.fspath(f))
        except OSError:
            # PyTorch has its own words for it.
            return original(obj, f, *arguments, **keywords)
        with file:
            return original(obj, file, *arguments, **keywords)

    torch.save = torch.serialization.save = save


def safetensors_saves(module):
    """Called when the writer of safetensors for PyTorch has been loaded."""
    original = module.save_file

    @functools.wraps(original)
    def save_file(tensors, filename, *arguments, **keywords):
        result = original(tensors, filename, *arguments, **keywords)
        try:
            dig(filename)
        except OSError:
            pass
        return result

    module.save_file = save_file


# What changes something on the hub.
_SENDS = (
    "create_branch",
    "create_collection",
    "create_commit",
    "create_discussion",
    "create_pull_request",
    "create_repo",
    "create_tag",
    "delete_branch",
    "delete_file",
    "delete_files",
    "delete_folder",
    "delete_repo",
    "delete_tag",
    "move_repo",
    "super_squash_history",
    "update_repo_settings",
    "update_repo_visibility",
    "upload_file",
    "upload_folder",
    "upload_large_folder",
)


def hub_sends(note):
    """Downloads work; what would change the hub does nothing."""

    def change(module):
        def result(name, words):
            repository = words.get("repo_id") or "user/repository"
            address = "https://huggingface.co/" + repository
            if name == "create_repo":
                return module.RepoUrl(address)
            if name in ("create_commit", "upload_file", "upload_folder"):
                address += "/commit/" + "0" * 40
                return module.CommitInfo(commit_url=address, commit_message="", commit_description="", oid="0" * 40)
            return None

        def instead(name, original):
            @functools.wraps(original)
            def call(self, *arguments, run_as_future=False, **words):
                note("remark", "nothing was sent to the Hugging Face Hub (%s)" % name)
                if arguments and name == "create_repo":
                    words.setdefault("repo_id", arguments[0])
                found = result(name, words)
                if not run_as_future:
                    return found
                future = concurrent.futures.Future()
                future.set_result(found)
                return future

            return call

        for name in _SENDS:
            original = getattr(module.HfApi, name, None)
            if original is not None:
                setattr(module.HfApi, name, instead(name, original))
                # The module's own functions are methods of an object.
                if hasattr(module, name) and hasattr(module, "api"):
                    setattr(module, name, getattr(module.api, name))

    return change


def mlflow_is_local(module):
    """MLflow records into the program's own files, wherever the program says that the server is."""
    original = module.set_tracking_uri

    @functools.wraps(original)
    def set_tracking_uri(uri):
        if not str(uri).startswith(("http:", "https:", "databricks", "uc:")):
            original(uri)

    module.set_tracking_uri = set_tracking_uri


def comet_is_offline(module):
    """Experiments of Comet are written to files."""
    if hasattr(module, "OfflineExperiment"):
        module.Experiment = module.OfflineExperiment


def calls(note):
    """By module: what is called when it has been loaded."""
    return {
        "safetensors.torch": safetensors_saves,
        "huggingface_hub.hf_api": hub_sends(note),
        "mlflow": mlflow_is_local,
        "comet_ml": comet_is_offline,
    }
