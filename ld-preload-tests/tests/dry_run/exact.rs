//! Figures that are worked out a second time, without the program that told them.

use radrm_preload_tests::python::script;

use super::harness::{dry_run, dry_run_with, python};

/// The allocator's history is replayed by rules that are written down once more in `dry_run_replay.py`.
#[test]
fn peaks_and_addresses_are_those_of_an_allocator_that_is_computed_apart() {
    let Some(python) = python() else { return };
    let replay = script("dry_run_replay.py");
    for (setting, words) in [
        ("", &["dry_run_models.py", "resnet50", "4", "sgd"][..]),
        ("", &["dry_run_models.py", "gpt2", "2", "adamw", "amp", "checkpoint"]),
        ("max_split_size_mb:64", &["dry_run_models.py", "unet", "4", "adamw"]),
    ] {
        let program = script(words[0]);
        let arguments: Vec<&str> =
            [replay.as_str(), &program].into_iter().chain(words[1..].iter().copied()).collect();
        let run = dry_run_with(&python, &[], &[("PYTORCH_CUDA_ALLOC_CONF", setting)], &arguments).ok();
        let last = run.ended.stdout.lines().last().unwrap_or_default().to_owned();
        let numbers: Vec<u64> = last.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let &[allocated, reserved, own_allocated, own_reserved, same, requests] = numbers.as_slice() else {
            panic!("{}{}", run.ended.stdout, run.ended.stderr)
        };
        assert_eq!((allocated, reserved), (own_allocated, own_reserved), "{words:?} {setting}");
        assert_eq!(same, requests, "addresses differ: {words:?} {setting}");
        let whole = &run.report["dry_run"]["gpus"][0]["phases"]["whole"];
        assert_eq!(whole["reserved"].as_u64(), Some(reserved), "the report tells something else");
        assert_eq!(whole["allocated"].as_u64(), Some(allocated), "the report tells something else");
        assert!(requests > 1000, "{last}");
    }
}

/// Parameters and states of optimizers by hand: four bytes for each element, and nothing besides.
#[test]
fn optimizers_keep_what_their_definitions_say() {
    let Some(python) = python() else { return };
    // Name, settings, states as large as the parameter, and one-element states on the GPU.
    let code = "
import torch
shapes = [(1000, 1000), (1000,), (5000, 300), (7,), (3, 3, 64, 128)]
asked = lambda: torch.cuda.memory_stats().get('requested_bytes.all.current', 0)
for name, settings, like, single in [
    ('SGD', {}, 0, 0),
    ('SGD', {'momentum': 0.9}, 1, 0),
    ('SGD', {'momentum': 0.9, 'fused': True}, 1, 0),
    ('Adam', {'foreach': True}, 2, 0),
    ('Adam', {'foreach': False}, 2, 0),
    ('AdamW', {'fused': True}, 2, 1),
    ('AdamW', {'capturable': True}, 2, 1),
    ('Adam', {'amsgrad': True}, 3, 0),
    ('RMSprop', {}, 1, 0),
    ('RMSprop', {'momentum': 0.9, 'centered': True}, 3, 0),
    ('Adagrad', {}, 1, 0),
    ('Adadelta', {}, 2, 0),
    ('NAdam', {}, 2, 0),
    ('RAdam', {}, 2, 0),
    ('Adamax', {}, 2, 0),
]:
    before = asked()
    parameters = [torch.nn.Parameter(torch.zeros(shape, device='cuda')) for shape in shapes]
    optimizer = getattr(torch.optim, name)(parameters, lr=0.1, **settings)
    for step in range(2):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    elements = sum(parameter.numel() for parameter in parameters)
    expected = 4 * ((1 + like) * elements + single * len(parameters))
    kept = asked() - before
    if kept != expected:
        print(name, settings, kept, 'instead of', expected)
    del parameter, parameters, optimizer
print('done')
";
    let run = dry_run(&python, &[], &["-c", code]).ok();
    assert_eq!(run.ended.stdout.trim(), "done");
}
