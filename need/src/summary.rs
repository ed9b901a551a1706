//! A model's summary as torchsummary, torchinfo and Keras print it.

use radrm_estimator::memory::Shape;
use serde::{Deserialize, Serialize};

/// A layer that computes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Its kind, such as `Conv2d`.
    pub kind: String,
    /// Values it puts out for one sample.
    pub activations: u64,
    /// Its own parameters.
    pub parameters: u64,
}

/// A model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSummary {
    /// Layers, in the order printed. Blocks made of layers are left out: their layers stand for them.
    pub layers: Vec<Layer>,
    /// All parameters.
    pub parameters: u64,
    /// Trainable parameters.
    pub trainable: u64,
    /// Values that all layers put out for one sample.
    pub activations: u64,
    /// The batch size the summary was made with, if it says so.
    pub batch: Option<u32>,
    /// Number and size of the kinds of layers.
    #[serde(default)]
    pub shape: Shape,
}

/// Reason that a text is not a summary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SummaryError {
    /// No layer was found.
    #[error("no layer is in it: summaries of torchsummary, torchinfo and Keras are read")]
    NoLayers,
    /// The sum of parameters is missing.
    #[error("the line with the total of parameters is missing: it was cut off")]
    NoTotal,
}

impl ModelSummary {
    /// Reads a summary; what stands around it in the text is passed over.
    ///
    /// # Errors
    /// The text has no layers or no total.
    pub fn parse(text: &str) -> Result<Self, SummaryError> {
        let mut rows: Vec<Row> = Vec::new();
        let mut model = Self::default();
        let mut total = None;
        let mut inside = false;
        for line in text.lines() {
            // A log may hold more before it, and after the totals.
            if line.contains("Layer (type") {
                inside = true;
                rows.clear();
                (total, model.trainable) = (None, 0);
            } else if let Some(number) = after(line, "Total params:") {
                total = Some(number);
                inside = false;
            } else if let Some(number) = trainable(line) {
                model.trainable = number;
            } else if inside && let Some(row) = row(line) {
                rows.push(row);
            }
        }
        // A row is a block if the next one is deeper; its outputs are those of its last layer.
        for (at, row) in rows.iter().enumerate() {
            if rows.get(at + 1).is_some_and(|next| next.depth > row.depth) {
                continue;
            }
            model.batch = model.batch.or(row.batch);
            model.activations = model.activations.saturating_add(row.activations);
            let (kind, activations, parameters) = (row.kind.clone(), row.activations, row.parameters);
            model.shape.add(&kind, activations, parameters);
            model.layers.push(Layer { kind, activations, parameters });
        }
        if model.layers.is_empty() {
            return Err(SummaryError::NoLayers);
        }
        model.parameters = total.ok_or(SummaryError::NoTotal)?;
        Ok(model)
    }

    /// Number of layers of a kind, by the beginning of its name, capitals or not.
    #[must_use]
    pub fn count(&self, kind: &str) -> usize {
        let alike = |layer: &&Layer| {
            layer.kind.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind))
        };
        self.layers.iter().filter(alike).count()
    }
}

struct Row {
    depth: usize,
    kind: String,
    activations: u64,
    parameters: u64,
    batch: Option<u32>,
}

fn row(line: &str) -> Option<Row> {
    // Keras 3 draws its table with lines; a bar between columns is a space to us. Torchinfo draws
    // its tree with the same characters, but only in front.
    let tree = |c: char| c.is_whitespace() || "├└─│┃║".contains(c);
    let depth = line.chars().take_while(|c| tree(*c)).count();
    let boxed = line.trim_start().starts_with('│') && line.trim_end().ends_with('│');
    let depth = if boxed || !line.contains("─") { 0 } else { depth };
    let body: String = line.chars().map(|c| if "│┃║".contains(c) { ' ' } else { c }).collect();
    let body = body.trim_start_matches(tree).trim_end();
    let (open, shapes, rest) = shapes(body)?;
    let name = body[..open].trim();
    // `Conv2d-1`, `Conv2d: 1-1`, `dense (Dense)`.
    let kind = if let Some((_, kind)) = name.split_once('(') {
        kind.split(')').next()?.trim()
    } else if let Some((kind, _)) = name.split_once(':') {
        kind.split('(').next()?.trim()
    } else {
        name.rsplit_once('-').map_or(name, |(kind, number)| {
            if number.bytes().all(|byte| byte.is_ascii_digit()) { kind } else { name }
        })
    };
    if kind.is_empty() {
        return None;
    }
    let mut activations = 0u64;
    let mut batch = None;
    for dims in &shapes {
        // The first dimension is the batch: -1, None or the size it was made with.
        let (first, others) = dims.split_first()?;
        batch = batch.or(first.and_then(|size| u32::try_from(size).ok()));
        let values = others.iter().map(|dim| dim.unwrap_or(1)).fold(1u64, u64::saturating_mul);
        activations = activations.saturating_add(values);
    }
    let parameters = rest.split_whitespace().find_map(number).unwrap_or(0);
    Some(Row { depth, kind: kind.to_owned(), activations, parameters, batch })
}

type Dims = Vec<Option<u64>>;

/// The first group of shapes: where it begins, the shapes, and what stands behind.
fn shapes(body: &str) -> Option<(usize, Vec<Dims>, &str)> {
    let mut from = 0;
    while let Some(at) = body[from..].find(['[', '(']).map(|at| from + at) {
        let mut depth = 0usize;
        let mut end = None;
        for (offset, c) in body[at..].char_indices() {
            match c {
                '[' | '(' => depth += 1,
                ']' | ')' => depth = depth.saturating_sub(1),
                _ => continue,
            }
            if depth == 0 {
                end = Some(at + offset + 1);
                break;
            }
        }
        // A group that is not closed was cut by the column's width.
        let end = end?;
        let group = &body[at..end];
        let dims: Vec<Dims> = group
            .split(['[', ']', '(', ')'])
            .map(|part| part.trim_matches([',', ' ']))
            .filter(|part| !part.is_empty())
            .filter_map(shape)
            .collect();
        if !dims.is_empty() {
            return Some((at, dims, &body[end..]));
        }
        // `(Dense)` is no shape.
        from = end;
    }
    None
}

fn shape(text: &str) -> Option<Dims> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| match part {
            "None" | "-1" | "?" => Some(None),
            number => number.parse().ok().map(Some),
        })
        .collect()
}

fn number(text: &str) -> Option<u64> {
    // `(recursive)` and `--` are no numbers.
    let digits: String = text.chars().filter(|c| *c != ',').collect();
    digits.parse().ok()
}

fn after(line: &str, label: &str) -> Option<u64> {
    let at = line.find(label)?;
    line[at + label.len()..].split_whitespace().next().and_then(number)
}

fn trainable(line: &str) -> Option<u64> {
    if line.contains("Non-trainable") { None } else { after(line, "Trainable params:") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TORCHSUMMARY: &str = "\
loading data...
----------------------------------------------------------------
        Layer (type)               Output Shape         Param #
================================================================
            Conv2d-1           [-1, 10, 24, 24]             260
              ReLU-2           [-1, 10, 24, 24]               0
            Linear-3                   [-1, 10]          57,610
================================================================
Total params: 57,870
Trainable params: 57,000
Non-trainable params: 870
----------------------------------------------------------------
Input size (MB): 0.00
";

    const TORCHINFO: &str = "\
==========================================================================================
Layer (type:depth-idx)                   Output Shape              Param #
==========================================================================================
SingleInputNet                           [2, 10]                   --
├─Conv2d: 1-1                            [2, 10, 24, 24]           260
├─Sequential: 1-2                        [2, 50]                   --
│    └─Linear: 2-1                       [2, 50]                   16,050
│    └─ReLU: 2-2                         [2, 50]                   --
├─Linear: 1-3                            [2, 10]                   510
==========================================================================================
Total params: 16,820
Trainable params: 16,820
Non-trainable params: 0
Total mult-adds (M): 0.48
";

    const KERAS2: &str = "\
Model: \"sequential\"
_________________________________________________________________
 Layer (type)                Output Shape              Param #
=================================================================
 conv2d (Conv2D)             (None, 26, 26, 32)        320

 dense (Dense)               (None, 64)                640

=================================================================
Total params: 960 (3.75 KB)
Trainable params: 960 (3.75 KB)
Non-trainable params: 0 (0.00 Byte)
";

    const KERAS3: &str = "\
Model: \"functional\"
┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┓
┃ Layer (type)        ┃ Output Shape     ┃ Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━╇━━━━━━━━━┩
│ dense (Dense)       │ (None, 64)       │   1,640 │
├─────────────────────┼──────────────────┼─────────┤
│ dense_1 (Dense)     │ (None, 10)       │     650 │
└─────────────────────┴──────────────────┴─────────┘
 Total params: 2,290 (8.95 KB)
 Trainable params: 2,290 (8.95 KB)
";

    fn kinds(model: &ModelSummary) -> Vec<&str> {
        model.layers.iter().map(|layer| layer.kind.as_str()).collect()
    }

    #[test]
    fn torchsummary_is_read() {
        let model = ModelSummary::parse(TORCHSUMMARY).unwrap();
        assert_eq!(kinds(&model), ["Conv2d", "ReLU", "Linear"]);
        assert_eq!((model.parameters, model.trainable), (57_870, 57_000));
        assert_eq!(model.activations, 2 * 5760 + 10);
        assert_eq!((model.batch, model.count("conv")), (None, 1));
    }

    #[test]
    fn torchinfo_is_read_without_its_blocks() {
        let model = ModelSummary::parse(TORCHINFO).unwrap();
        assert_eq!(kinds(&model), ["Conv2d", "Linear", "ReLU", "Linear"]);
        assert_eq!(model.activations, 5760 + 50 + 50 + 10);
        assert_eq!((model.parameters, model.batch), (16_820, Some(2)));
    }

    #[test]
    fn both_forms_of_keras_are_read() {
        let old = ModelSummary::parse(KERAS2).unwrap();
        assert_eq!(
            (kinds(&old), old.activations, old.parameters),
            (vec!["Conv2D", "Dense"], 26 * 26 * 32 + 64, 960)
        );
        let new = ModelSummary::parse(KERAS3).unwrap();
        assert_eq!((kinds(&new), new.activations, new.parameters), (vec!["Dense", "Dense"], 74, 2290));
        assert_eq!(new.layers[0].parameters, 1640);
    }

    #[test]
    fn what_is_no_summary_is_told() {
        assert_eq!(ModelSummary::parse("hello (world)\n"), Err(SummaryError::NoLayers));
        let cut: String = TORCHSUMMARY.lines().take(6).collect::<Vec<_>>().join("\n");
        assert_eq!(ModelSummary::parse(&cut), Err(SummaryError::NoTotal));
        assert_eq!(ModelSummary::parse("Layer (type\n[[[ (\n│ ─ ( [\n"), Err(SummaryError::NoLayers));
    }
}
