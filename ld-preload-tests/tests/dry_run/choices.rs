//! Shares of a training's choices in its peak.

use super::harness::{plain_dry_run, python};

/// A layer with 64 MiB of parameters, and an attention over 1,024 positions, 8 heads and 2 sequences, whose probabilities take 64 MiB.
const TRAINS: &str = "import torch
layer = torch.nn.Linear(4096, 4096, bias=False).cuda()
optimizer = torch.optim.AdamW(layer.parameters(), foreach=False)
for _ in range(3):
    q = layer(torch.zeros(2048, 4096, device='cuda')).view(2, 1024, 8, 512).transpose(1, 2)
    SCORES
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
";
const PRODUCTS: &str = "out = (q @ q.transpose(-1, -2)).softmax(-1) @ q";

#[test]
fn types_optimizer_and_attention_have_their_shares_of_the_peak() {
    let Some(python) = python() else { return };
    let program = TRAINS.replace("SCORES", PRODUCTS);
    let run = plain_dry_run(&python, &[], &["-c", &program]).ok();
    let remarks = run.report["dry_run"]["remarks"].as_array().cloned().unwrap_or_default();
    let remarks: Vec<&str> = remarks.iter().filter_map(|remark| remark.as_str()).collect();
    for (begin, end) in [
        ("of the peak, 128 MiB (", " %) are states of AdamW"),
        ("of the peak, 64 MiB (", " %) are parameters in float32"),
        ("of the peak, 64 MiB (", " %) are gradients in float32"),
        (
            "of the peak, up to 64.0 MiB (",
            " %) are probabilities of attention, which a fused implementation does not keep",
        ),
    ] {
        assert!(
            remarks.iter().any(|remark| remark.starts_with(begin) && remark.ends_with(end)),
            "{begin}{end}: {remarks:#?}"
        );
    }
    let program = TRAINS.replace("SCORES", "out = q * 2");
    let run = plain_dry_run(&python, &[], &["-c", &program]).ok();
    let remarks = run.report["dry_run"]["remarks"].to_string();
    assert!(!remarks.contains("attention"), "{remarks}");
}
