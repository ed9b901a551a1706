//! radT's listener `pytorch`: the first steps of a training in the trace of PyTorch's profiler. PyTorch itself is stood in for.

use super::*;

/// The part of PyTorch that `radrm.profiled` uses: a profiler that counts the steps between its start and its end.
const FILES: [(&str, &str); 4] = [
    ("torch/__init__.py", "class cuda:\n    is_available = staticmethod(lambda: False)\n"),
    ("torch/optim/__init__.py", ""),
    (
        "torch/optim/optimizer.py",
        "hooks = []\nclass Handle:\n    def __init__(self, hook): self.hook = hook\n    def remove(self): hooks.remove(self.hook)\n\
         def register_optimizer_step_post_hook(hook):\n    hooks.append(hook)\n    return Handle(hook)\n",
    ),
    (
        "torch/profiler.py",
        "import torch.optim.optimizer as optimizer\nclass ProfilerActivity: CPU, CUDA = 'cpu', 'cuda'\n\
         class profile:\n    steps = 0\n    def __init__(self, activities, record_shapes): assert activities == ['cpu']\n    \
         def start(self): optimizer.hooks.insert(0, self.count)\n    def count(self, *_): self.steps += 1\n    \
         def stop(self): optimizer.hooks.remove(self.count)\n    \
         def export_chrome_trace(self, path): open(path, 'w').write(str(self.steps))\n",
    ),
];

const TRAIN: &str = "\
import sys
from torch.optim.optimizer import hooks
for step in range(int(sys.argv[1])):
    for hook in list(hooks): hook(None, (), {})
";

#[test]
fn pytorchs_profiler_records_the_first_steps_or_all() {
    let place = place("");
    for folder in ["torch", "torch/optim"] {
        fs::create_dir(place.join(folder)).unwrap();
    }
    for (name, text) in FILES {
        fs::write(place.join(name), text).unwrap();
    }
    fs::write(place.join("train.py"), TRAIN).unwrap();
    fs::write(
        place.join("t.csv"),
        "Workload,File,Listeners,Params\n1,train.py,smi+pytorch,60\n2,train.py,pytorch,7\n",
    )
    .unwrap();
    let mut command = sweep(&place, &["--emulate", "T4", "t.csv"]);
    let modules = artifacts::workspace().join("contrib/python");
    command.env("PYTHONPATH", format!("{}:{}", modules.display(), place.path().display()));
    finish(command).code(0);
    let steps =
        |run: &str| fs::read_to_string(place.join(&format!("t.csv.sweep/{run}/1/profiler.json"))).unwrap();
    assert_eq!([steps("00001"), steps("00002")], ["50", "7"]);
}
