//! Holders of the memory of a framework's allocator at its peak: by line, by module of the model and by what it was.

use super::{GpuIndex, ProcessKey, StackCode};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// The tensors of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensors {
    /// Key of the process.
    pub key: ProcessKey,
    /// Framework and version, such as `PyTorch 2.15.0`; empty if none was seen.
    pub framework: String,
    /// Reason that only the driver's allocations are known, as a clause; `None` if tensors were recorded.
    pub missing: Option<String>,
    /// Remarks on the figures for the reader, as clauses.
    pub remarks: Vec<String>,
    /// By GPU.
    pub gpus: Vec<GpuTensors>,
}

/// Holders of the allocator's memory on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTensors {
    /// The GPU.
    pub gpu: GpuIndex,
    /// Moment of the figures.
    pub moment: TensorMoment,
    /// Bytes of the allocator's blocks in use at that moment: the sum of `holders`.
    pub allocated: Bytes,
    /// The allocator's own peak where `moment` is another one; `None` if it has none.
    pub peak: Option<Bytes>,
    /// Bytes that the allocator held at that moment and that were in no use.
    pub cached: Bytes,
    /// Functions, by number.
    pub codes: Vec<StackCode>,
    /// Modules, by number.
    pub modules: Vec<TensorModule>,
    /// Holders of that memory, largest first.
    pub holders: Vec<TensorHolder>,
}

/// Moment of figures of tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorMoment {
    /// The peak of the allocator's blocks in use.
    #[default]
    Peak,
    /// The end of the program: the framework keeps no history.
    End,
    /// The largest of the moments that were read: the framework keeps no history, or the recording rested at the peak.
    LargestRead,
}

/// A module of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorModule {
    /// Class of the outermost module.
    pub model: String,
    /// Path in it, as `named_modules` gives it; empty for the outermost module.
    pub path: String,
}

/// Blocks of one stack, module and category.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorHolder {
    /// Category of the memory.
    pub category: TensorCategory,
    /// Number of the module.
    pub module: Option<u32>,
    /// Numbers of functions, and lines, innermost first; empty if no frames are known.
    pub frames: Vec<(u32, u32)>,
    /// Bytes, as the allocator counts them: with what it rounded up.
    pub bytes: Bytes,
    /// Blocks.
    pub blocks: u64,
    /// Origin of the stack in `frames`.
    pub stack: TensorStack,
}

/// Origin of the stack of an allocator's block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorStack {
    /// That of its own request.
    #[default]
    Own,
    /// That of a block of the same address and size in an earlier step that was recorded.
    EqualStep,
    /// None: its request was not recorded.
    NotRecorded,
}

/// Category of an allocator's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorCategory {
    /// Parameters of models.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// States of optimizers.
    OptimizerState,
    /// Buffers of models.
    Buffers,
    /// Asked for in a forward pass, and from there until the backward pass.
    Activations,
    /// Asked for in a backward pass, and no gradient of a parameter.
    Backward,
    /// Asked for in a step of an optimizer, and no state of it.
    OptimizerStep,
    /// Workspaces of cuBLAS that the framework keeps.
    Workspace,
    /// Compiled programs.
    Executables,
    /// Any other tensors.
    #[default]
    Other,
    /// Not known: the recorded history does not reach to the moment, or the framework does not list it.
    Unknown,
    /// Arrays, where nothing else is known of them.
    Arrays,
}

impl TensorCategory {
    /// As reports show it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::OptimizerState => "optimizer state",
            Self::Buffers => "buffers",
            Self::Activations => "activations",
            Self::Backward => "backward pass",
            Self::OptimizerStep => "optimizer step",
            Self::Workspace => "workspace",
            Self::Executables => "executables",
            Self::Other => "other tensors",
            Self::Unknown => "unknown",
            Self::Arrays => "arrays",
        }
    }
}

impl GpuTensors {
    /// Bytes of all holders.
    pub fn held(&self) -> Bytes {
        Bytes(self.holders.iter().map(|holder| holder.bytes.0).fold(0, u64::saturating_add))
    }
}
