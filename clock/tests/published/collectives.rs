//! Collective operations over NVLink.

use std::path::Path;

use radrm_clock::train::Sample;
use radrm_clock::{Cards, Collective, Link, Operands, Precision, Shape, Work};

use super::{card_of, tables};

/// Smallest message that counts, bytes: below it the latency of the library's version decides.
const MIN_BYTES: f64 = (1 << 20) as f64;

fn sample(cards: &Cards, card: &str, what: Collective, [ranks, bytes, seconds]: [f64; 3]) -> Sample {
    let shape = Shape::Collective { operation: what, ranks, bytes, link: Link::NvLink };
    Sample {
        work: Work::of(shape, Operands::of(Precision::Bf16)),
        card: card_of(cards, card),
        family: format!("{what:?} {ranks} {}", bytes.log2() as u64),
        seconds,
        overhead: 0.0,
    }
}

fn collective(name: &str) -> Option<Collective> {
    Some(match name {
        "all_reduce" => Collective::AllReduce,
        "all_gather" => Collective::AllGather,
        "reduce_scatter" => Collective::ReduceScatter,
        "alltoall" => Collective::AllToAll,
        "send_recv" => Collective::SendReceive,
        _ => return None,
    })
}

/// NCCL's tests by NVIDIA AIConfigurator.
pub fn nccl(folder: &Path, cards: &Cards) -> Vec<Sample> {
    let rows = tables::read(&folder.join("aiconfigurator/nccl.csv.gz"));
    let of = |row: &tables::Row| {
        let card = match row.text("card") {
            "a100_sxm" => "A100-80GB",
            "h100_sxm" => "H100-80GB",
            _ => return None,
        };
        let bytes = 2.0 * row.number("message_size");
        let figures = [row.number("num_gpus"), bytes, row.number("latency_ms") * 1e-3];
        (bytes >= MIN_BYTES).then_some(sample(cards, card, collective(row.text("op_name"))?, figures))
    };
    rows.iter().filter_map(of).collect()
}

/// Collectives of one node that Vidur profiled; a pair of cards shares NVLink where there is no switch.
/// The node with A40 moves 4 GB/s, so its pairs have no NVLink.
pub fn vidur(folder: &Path, cards: &Cards) -> Vec<Sample> {
    let rows = tables::read(&folder.join("vidur/collectives.csv.gz"));
    let of = |row: &tables::Row| {
        let ranks = row.number("num_workers");
        let card = match (row.text("node"), ranks) {
            ("a100_dgx", _) => "A100-80GB",
            ("a100_pairwise_nvlink", 2.0) => "A100-PCIe-80GB",
            _ => return None,
        };
        let bytes = row.number("bytes");
        let local = row.number("devices_per_node") >= ranks && bytes >= MIN_BYTES;
        let figures = [ranks, bytes, row.number("median_ms") * 1e-3];
        local.then_some(sample(cards, card, collective(row.text("op"))?, figures))
    };
    rows.iter().filter_map(of).collect()
}
