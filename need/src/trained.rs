//! The memory model that estimates are made by.

use std::sync::Arc;

use radrm_estimator::memory::MemoryModel;

/// A memory model: the site's trained one, or the one that ships.
#[derive(Clone, Debug, Default)]
pub struct Trained(Option<Arc<MemoryModel>>);

impl Trained {
    /// This model.
    #[must_use]
    pub fn new(model: MemoryModel) -> Self {
        Self(Some(Arc::new(model)))
    }

    pub(super) fn get(&self) -> &MemoryModel {
        self.0.as_deref().unwrap_or_else(|| MemoryModel::shipped())
    }
}
