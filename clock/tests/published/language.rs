//! Operations of language models: NVIDIA AIConfigurator, Vidur, LLMServingSim.

use std::path::Path;

use radrm_clock::train::Sample;
use radrm_clock::{Cards, Operands, Precision, Shape, Work};

use super::{card_of, tables};

fn card_name(name: &str) -> &str {
    match name {
        "a100_sxm" | "a100" => "A100-80GB",
        "h100_sxm" | "h100" => "H100-80GB",
        "l40s" => "L40S",
        "a40" => "A40",
        "A6000" => "RTXA6000",
        other => other,
    }
}

/// The stack of each card that counts, A100 first: two stacks call other kernels for one product, and their mean is neither.
const STACKS: [&str; 2] = ["sglang 0.5.10", "vllm 0.24.0"];

/// Matrix products in one stack a card.
pub fn gemm(folder: &Path, cards: &Cards) -> Vec<Sample> {
    let rows = tables::read(&folder.join("aiconfigurator/gemm.csv.gz"));
    let sample = |row: &tables::Row| {
        let [m, n, k] = ["m", "n", "k"].map(|column| row.number(column));
        let precision = if row.text("dtype") == "fp8" { Precision::F8 } else { Precision::Bf16 };
        Sample {
            work: Work::of(Shape::Gemm { batch: 1.0, m, n, k }, Operands::of(precision)).cached(),
            card: card_of(cards, card_name(row.text("card"))),
            family: format!("{n} {k}"),
            seconds: row.number("latency_ms") * 1e-3,
            overhead: 0.0,
        }
    };
    rows.iter().filter(|row| STACKS.contains(&row.text("stack"))).map(sample).collect()
}

/// Attention in vLLM.
pub fn attention(folder: &Path, cards: &Cards) -> Vec<Sample> {
    let rows = tables::read(&folder.join("aiconfigurator/attention.csv.gz"));
    let sample = |row: &tables::Row| {
        let [batch, length, step, heads, kv_heads, head_dim] =
            ["batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim"]
                .map(|column| row.number(column));
        let shape = if row.text("kind") == "context" {
            let (queries, keys) = (length, length + step);
            Shape::AttentionPrefill { batch, queries, keys, heads, kv_heads, head_dim, causal: true }
        } else {
            Shape::AttentionDecode { batch, keys: length + step, heads, kv_heads, head_dim }
        };
        Sample {
            work: Work::of(shape, Operands::of(Precision::Bf16)).cached(),
            card: card_of(cards, card_name(row.text("card"))),
            family: format!("{heads} {kv_heads} {head_dim}"),
            seconds: row.number("latency_ms") * 1e-3,
            overhead: 0.0,
        }
    };
    rows.iter().map(sample).collect()
}

/// Shortest time of a row of Vidur that counts, ms: it gives medians to the microsecond.
const MIN_VIDUR_MS: f64 = 0.05;

/// Linear layers and additions of models that Vidur profiled, half precision.
pub fn vidur(folder: &Path, cards: &Cards) -> Vec<Sample> {
    let mut samples = Vec::new();
    for row in tables::read(&folder.join("vidur/mlp.csv.gz")) {
        let [heads, kv_heads, width, expanded, tokens, ranks] =
            ["n_head", "n_kv_head", "n_embd", "n_expanded_embd", "num_tokens", "num_tensor_parallel_workers"]
                .map(|column| row.number(column));
        let gated = if row.text("use_gated_mlp") == "True" { 2.0 } else { 1.0 };
        let head = width / heads;
        let layers = [
            ("attn_pre_proj_ms", (heads + 2.0 * kv_heads) * head / ranks, width),
            ("attn_post_proj_ms", width, width / ranks),
            ("mlp_up_proj_ms", gated * expanded / ranks, width),
            ("mlp_down_proj_ms", width, expanded / ranks),
        ];
        let types = Operands::of(Precision::F16);
        let mut add = |column: &str, shape: Shape, family: String| {
            let milliseconds = row.number(column);
            if milliseconds >= MIN_VIDUR_MS {
                samples.push(Sample {
                    work: Work::of(shape, types).cached(),
                    card: card_of(cards, card_name(row.text("card"))),
                    family,
                    seconds: milliseconds * 1e-3,
                    overhead: 0.0,
                });
            }
        };
        for (column, n, k) in layers {
            add(column, Shape::Gemm { batch: 1.0, m: tokens, n, k }, format!("{n} {k}"));
        }
        let shape = Shape::Elementwise { elements: tokens * width, inputs: 2.0 };
        add("add_ms", shape, format!("add {}", (tokens * width).log2() as u64));
    }
    samples
}

/// Shortest time of a row of the older method that counts, microseconds: it holds about 18 us of the host.
const MIN_OLDER_US: f64 = 400.0;

/// Layers that LLMServingSim profiled: Llama 3.1 8B.
pub fn layers(folder: &Path, cards: &Cards) -> Vec<Sample> {
    let mut samples = Vec::new();
    for row in tables::read(&folder.join("llmservingsim/layers.csv.gz")) {
        let (card, microseconds) = (row.text("card"), row.number("time_us"));
        let kernel_times = card == "RTX4090";
        // Of the H100 there are better tables; the two methods of this one are not mixed.
        if card == "H100" || row.text("model") != "meta-llama/Llama-3.1-8B" || row.text("tp") != "1" {
            continue;
        }
        if !kernel_times && microseconds < MIN_OLDER_US {
            continue;
        }
        let tokens = row.number("tokens");
        let linear = |n: f64, k: f64| (Shape::Gemm { batch: 1.0, m: tokens, n, k }, format!("{n} {k}"));
        let near = |what: &str| format!("{what} {}", tokens.log2() as u64);
        let (shape, family) = match row.text("layer") {
            "qkv_proj" => linear(6144.0, 4096.0),
            "q_proj" | "o_proj" => linear(4096.0, 4096.0),
            "k_proj" | "v_proj" => linear(1024.0, 4096.0),
            "gate_up_proj" => linear(28672.0, 4096.0),
            "gate_proj" | "up_proj" => linear(14336.0, 4096.0),
            "down_proj" => linear(4096.0, 14336.0),
            "lm_head" => linear(128_256.0, 4096.0),
            // SiLU of one half times the other one.
            "act_fn" if kernel_times => {
                (Shape::Elementwise { elements: tokens * 14336.0, inputs: 2.0 }, near("silu"))
            }
            "final_layernorm" if kernel_times => {
                (Shape::Norm { rows: tokens, columns: 4096.0 }, near("norm"))
            }
            _ => continue,
        };
        samples.push(Sample {
            work: Work::of(shape, Operands::of(Precision::Bf16)).cached(),
            card: card_of(cards, card_name(card)),
            family,
            seconds: microseconds * 1e-6,
            overhead: 0.0,
        });
    }
    samples
}
