//! Operations of a GPU program: what is computed, in which types, on how many numbers.

/// Type in which an operation multiplies or moves numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// IEEE double.
    F64,
    /// IEEE single, not on tensor cores.
    F32,
    /// Single in memory, 19 bits on tensor cores.
    Tf32,
    /// IEEE half.
    F16,
    /// Brain float.
    Bf16,
    /// 8-bit floats.
    F8,
}

impl Precision {
    /// Bytes of a number in memory.
    #[must_use]
    pub fn bytes(self) -> f64 {
        match self {
            Self::F64 => 8.0,
            Self::F32 | Self::Tf32 => 4.0,
            Self::F16 | Self::Bf16 => 2.0,
            Self::F8 => 1.0,
        }
    }
}

/// Types of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    /// Type of the operands.
    pub operand: Precision,
    /// Type in which products are added up.
    pub accumulate: Precision,
    /// Type of the result in memory.
    pub result: Precision,
}

impl Operands {
    /// Products of this type are added up in single precision; results of 8-bit operands are brain floats.
    #[must_use]
    pub fn of(operand: Precision) -> Self {
        let result = if operand == Precision::F8 { Precision::Bf16 } else { operand };
        let accumulate = if operand == Precision::F64 { Precision::F64 } else { Precision::F32 };
        Self { operand, accumulate, result }
    }
}

/// Collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets all parts.
    AllGather,
    /// Every rank gets its part of the sum.
    ReduceScatter,
    /// Every rank sends a part to every other one.
    AllToAll,
    /// One rank sends to another one.
    SendReceive,
}

/// Connection of the ranks of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// NVLink between all ranks, in one node.
    NvLink,
    /// PCI Express or a network: its topology decides, and the card does not tell it.
    Other,
}

/// Kind of an operation, with its sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// `batch` products of an m x k and a k x n matrix.
    Gemm {
        /// Number of products.
        batch: f64,
        /// Rows of the result.
        m: f64,
        /// Columns of the result.
        n: f64,
        /// Length of the sums.
        k: f64,
    },
    /// Two-dimensional convolution, forward.
    Convolution {
        /// Images.
        batch: f64,
        /// Channels of an input image.
        channels_in: f64,
        /// Channels of an output image.
        channels_out: f64,
        /// Pixels of an input image.
        pixels_in: f64,
        /// Pixels of an output image.
        pixels_out: f64,
        /// Elements of the kernel, 9 for 3 x 3.
        window: f64,
        /// Groups of channels.
        groups: f64,
    },
    /// Attention over many queries: forward pass, no scores in memory.
    AttentionPrefill {
        /// Sequences.
        batch: f64,
        /// Queries of a sequence.
        queries: f64,
        /// Keys of a sequence.
        keys: f64,
        /// Query heads.
        heads: f64,
        /// Heads of keys and values.
        kv_heads: f64,
        /// Numbers of a head.
        head_dim: f64,
        /// True if a query sees only keys before it.
        causal: bool,
    },
    /// Attention of one query a sequence over cached keys and values.
    AttentionDecode {
        /// Sequences.
        batch: f64,
        /// Keys of a sequence.
        keys: f64,
        /// Query heads.
        heads: f64,
        /// Heads of keys and values.
        kv_heads: f64,
        /// Numbers of a head.
        head_dim: f64,
    },
    /// Each result from the elements at its place.
    Elementwise {
        /// Results.
        elements: f64,
        /// Tensors that are read.
        inputs: f64,
    },
    /// Sums, maxima and the like over rows.
    Reduction {
        /// Rows.
        rows: f64,
        /// Elements of a row.
        columns: f64,
    },
    /// Layer or RMS normalization of rows.
    Norm {
        /// Rows.
        rows: f64,
        /// Elements of a row.
        columns: f64,
    },
    /// Softmax of rows.
    Softmax {
        /// Rows.
        rows: f64,
        /// Elements of a row.
        columns: f64,
    },
    /// Copy on the card.
    Copy {
        /// Bytes that are copied.
        bytes: f64,
    },
    /// Copy between host and card.
    HostCopy {
        /// Bytes that are copied.
        bytes: f64,
    },
    /// Collective operation of several GPUs.
    Collective {
        /// Operation of the ranks.
        operation: Collective,
        /// Ranks.
        ranks: f64,
        /// Bytes of the whole message.
        bytes: f64,
        /// Connection of the ranks.
        link: Link,
    },
    /// Anything else: it has no predicted time.
    Other,
}

/// Kind of an operation, without its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// [`Shape::Gemm`] on tensor cores.
    Gemm,
    /// [`Shape::Gemm`] in single or double precision, not on tensor cores.
    GemmSimt,
    /// [`Shape::Convolution`].
    Convolution,
    /// [`Shape::AttentionPrefill`].
    AttentionPrefill,
    /// [`Shape::AttentionDecode`].
    AttentionDecode,
    /// [`Shape::Elementwise`].
    Elementwise,
    /// [`Shape::Reduction`].
    Reduction,
    /// [`Shape::Norm`].
    Norm,
    /// [`Shape::Softmax`].
    Softmax,
    /// [`Shape::Copy`].
    Copy,
    /// [`Shape::HostCopy`].
    HostCopy,
    /// [`Shape::Collective`].
    Collective,
    /// [`Shape::Other`].
    Other,
}

/// One operation of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Kind and sizes.
    pub shape: Shape,
    /// Types.
    pub types: Operands,
    /// Arithmetic operations.
    pub flop: f64,
    /// Bytes read.
    pub read: f64,
    /// Bytes written.
    pub written: f64,
    /// True if the operands are still in the L2 cache, as far as they fit, because the operation before wrote them. Weights
    /// of a matrix product come from the memory all the same.
    pub cached: bool,
}

impl Work {
    /// The operation of a shape, with FLOP and bytes that follow from its sizes: each tensor is moved once.
    #[must_use]
    pub fn of(shape: Shape, types: Operands) -> Self {
        let (size, result) = (types.operand.bytes(), types.result.bytes());
        let (flop, read, written) = match shape {
            Shape::Gemm { batch, m, n, k } => {
                (2.0 * batch * m * n * k, size * batch * (m * k + k * n), result * batch * m * n)
            }
            Shape::Convolution {
                batch,
                channels_in,
                channels_out,
                pixels_in,
                pixels_out,
                window,
                groups,
            } => {
                let weights = channels_in / groups * channels_out * window;
                (
                    2.0 * batch * pixels_out * weights,
                    size * (batch * channels_in * pixels_in + weights),
                    result * batch * channels_out * pixels_out,
                )
            }
            Shape::AttentionPrefill { batch, queries, keys, heads, kv_heads, head_dim, causal } => {
                // A query sees the keys up to its own place at the end of the sequence.
                let seen = if causal { keys - (queries.min(keys) - 1.0) / 2.0 } else { keys };
                (
                    4.0 * batch * heads * head_dim * queries * seen,
                    size * batch * head_dim * (heads * queries + 2.0 * kv_heads * keys),
                    result * batch * head_dim * heads * queries,
                )
            }
            Shape::AttentionDecode { batch, keys, heads, kv_heads, head_dim } => (
                4.0 * batch * heads * head_dim * keys,
                size * batch * head_dim * (heads + 2.0 * kv_heads * keys),
                result * batch * head_dim * heads,
            ),
            Shape::Elementwise { elements, inputs } => {
                (elements, size * inputs * elements, result * elements)
            }
            Shape::Reduction { rows, columns } => (rows * columns, size * rows * columns, result * rows),
            Shape::Norm { rows, columns } | Shape::Softmax { rows, columns } => {
                (5.0 * rows * columns, size * rows * columns, result * rows * columns)
            }
            Shape::Copy { bytes } => (0.0, bytes, bytes),
            Shape::HostCopy { bytes } => (0.0, 0.0, bytes),
            Shape::Collective { bytes, .. } => (0.0, bytes, bytes),
            Shape::Other => (0.0, 0.0, 0.0),
        };
        Self { shape, types, flop, read, written, cached: false }
    }

    /// The operation with operands that are still in the L2 cache.
    #[must_use]
    pub fn cached(mut self) -> Self {
        self.cached = true;
        self
    }

    /// Kind of the operation.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.shape {
            Shape::Gemm { .. } if matches!(self.types.operand, Precision::F32 | Precision::F64) => {
                Kind::GemmSimt
            }
            Shape::Gemm { .. } => Kind::Gemm,
            Shape::Convolution { .. } => Kind::Convolution,
            Shape::AttentionPrefill { .. } => Kind::AttentionPrefill,
            Shape::AttentionDecode { .. } => Kind::AttentionDecode,
            Shape::Elementwise { .. } => Kind::Elementwise,
            Shape::Reduction { .. } => Kind::Reduction,
            Shape::Norm { .. } => Kind::Norm,
            Shape::Softmax { .. } => Kind::Softmax,
            Shape::Copy { .. } => Kind::Copy,
            Shape::HostCopy { .. } => Kind::HostCopy,
            Shape::Collective { .. } => Kind::Collective,
            Shape::Other => Kind::Other,
        }
    }

    /// Bytes read and written.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.read + self.written
    }

    /// Returns true if every size is a number that an operation can have.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let sizes: &[f64] = match &self.shape {
            Shape::Gemm { batch, m, n, k } => &[*batch, *m, *n, *k],
            Shape::Convolution {
                batch,
                channels_in,
                channels_out,
                pixels_in,
                pixels_out,
                window,
                groups,
            } => &[*batch, *channels_in, *channels_out, *pixels_in, *pixels_out, *window, *groups],
            Shape::AttentionPrefill { batch, queries, keys, heads, kv_heads, head_dim, .. } => {
                &[*batch, *queries, *keys, *heads, *kv_heads, *head_dim]
            }
            Shape::AttentionDecode { batch, keys, heads, kv_heads, head_dim } => {
                &[*batch, *keys, *heads, *kv_heads, *head_dim]
            }
            Shape::Elementwise { elements, inputs } => &[*elements, inputs.max(1.0)],
            Shape::Reduction { rows, columns }
            | Shape::Norm { rows, columns }
            | Shape::Softmax { rows, columns } => &[*rows, *columns],
            Shape::Copy { bytes } | Shape::HostCopy { bytes } => &[*bytes],
            Shape::Collective { ranks, bytes, .. } => &[*ranks - 1.0, *bytes],
            Shape::Other => &[],
        };
        // A product of such numbers is finite.
        let usual = |value: &f64| *value >= 1.0 && *value < 1e15;
        let amount = |value: f64| (0.0..1e24).contains(&value);
        sizes.iter().all(usual) && amount(self.flop) && amount(self.read) && amount(self.written)
    }
}
