//! Attention of a step, and what its implementation keeps for the backward pass.

use std::collections::BTreeSet;

use radrm_profile::Bytes;

use super::trace::{Node, Trace};

/// Operators of attention that keep no probabilities.
const FUSED: [&str; 4] = [
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_flash_attention_forward",
];
const SOFTMAX: &str = "aten::_softmax";
/// The least share of the peak that is named.
const MIN_SHARE: f64 = 0.01;

/// Bytes of the probabilities that a call of softmax over positions returns; `None` for another operator, such as the softmax of
/// classes, of each pixel of a square picture too.
fn probabilities(node: &Node) -> Option<f64> {
    let of = node.output(0).filter(|_| node.name == SOFTMAX)?;
    let is_square = of.dims.len() >= 3 && of.dim(-1) > 1.0 && of.dim(-1).total_cmp(&of.dim(-2)).is_eq();
    let dimension = node.number(1).unwrap_or(-1);
    let is_last = dimension == -1 || usize::try_from(dimension).is_ok_and(|at| at + 1 == of.dims.len());
    (of.on_gpu && is_square && is_last).then(|| of.bytes())
}

/// Sentence on the attention of a traced step, beside a peak of so many bytes of tensors; `None` where there is none, or it takes little.
pub(super) fn sentence(trace: &Trace, peak: u64) -> Option<String> {
    let kept: f64 = trace.nodes.iter().filter_map(probabilities).sum();
    if kept >= MIN_SHARE * peak as f64 && peak > 0 {
        let share = (kept / peak as f64).min(1.0) * 100.0;
        let bytes = Bytes(kept as u64);
        return Some(format!(
            "of the peak, up to {bytes} ({share:.0} %) are probabilities of attention, which a fused implementation does not keep"
        ));
    }
    let fused: BTreeSet<&str> =
        trace.nodes.iter().map(|node| node.name.as_str()).filter(|name| FUSED.contains(name)).collect();
    let name = fused.first()?.trim_start_matches("aten::").trim_start_matches('_');
    Some(format!("attention keeps no probabilities: it is {name}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::trace::{Argument, Element, Tensor};
    use super::*;

    fn node(name: &str, dims: &[f64], on_gpu: bool) -> Node {
        let element = Element { bytes: 2.0, float: None };
        let output = Argument::Tensor(Tensor { dims: dims.to_vec(), element, on_gpu });
        Node { name: name.to_owned(), inputs: Vec::new(), outputs: vec![output], children: Vec::new() }
    }

    /// Softmax over one dimension.
    fn over(dimension: i64, dims: &[f64]) -> Node {
        let inputs = [Value::Null, dimension.into(), false.into()].map(Argument::Other);
        Node { inputs: inputs.into(), ..node(SOFTMAX, dims, true) }
    }

    fn of(nodes: Vec<Node>) -> Option<String> {
        sentence(&Trace { nodes, roots: Vec::new() }, 1 << 30)
    }

    #[test]
    fn probabilities_of_attention_have_their_share_of_the_peak() {
        // 4 x 16 x 1024 x 1024 numbers of two bytes, in two layers.
        let layer = || node(SOFTMAX, &[4.0, 16.0, 1024.0, 1024.0], true);
        let expected = "of the peak, up to 256.0 MiB (25 %) are probabilities of attention";
        assert!(of(vec![layer(), layer()]).is_some_and(|found| found.starts_with(expected)));
        let classes = node(SOFTMAX, &[4096.0, 50_000.0], true);
        let host = node(SOFTMAX, &[4.0, 16.0, 1024.0, 1024.0], false);
        assert_eq!(of(vec![classes, host]), None);
        // Classes of the pixels of four pictures.
        assert_eq!(of(vec![over(1, &[4.0, 64.0, 512.0, 512.0])]), None);
        for last in [-1, 3] {
            assert!(of(vec![over(last, &[4.0, 64.0, 512.0, 512.0])]).is_some(), "{last}");
        }
        let fused = node("aten::_scaled_dot_product_flash_attention", &[4.0, 16.0, 1024.0, 64.0], true);
        let expected = "attention keeps no probabilities: it is scaled_dot_product_flash_attention";
        assert_eq!(of(vec![fused]).as_deref(), Some(expected));
        assert_eq!(of(Vec::new()), None);
    }
}
