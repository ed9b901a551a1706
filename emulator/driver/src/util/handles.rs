//! Handles, and objects by handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dashmap::DashMap;

/// Source of the values of handles: clones give values of one series.
#[derive(Clone, Debug, Default)]
pub struct Handles(Arc<AtomicU64>);

impl Handles {
    /// A handle's value: unique in the process, never an address that can be read.
    pub fn next(&self) -> u64 {
        0x0000_6e00_0000_0000 + (self.0.fetch_add(1, Relaxed) + 1) * 0x40
    }
}

/// Objects by handle, for any number of threads.
///
/// No entry is borrowed beyond a method: a caller gets an `Arc` of its own, so that whatever it does next (other locks,
/// the same table) happens without a shard's lock.
pub struct Registry<T> {
    objects: DashMap<u64, Arc<T>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { objects: DashMap::new() }
    }
}

impl<T> Registry<T> {
    /// Adds an object under a handle.
    pub fn insert(&self, handle: u64, object: Arc<T>) {
        // Dropped here, not under the shard's lock.
        let _before = self.objects.insert(handle, object);
    }

    /// The object of a handle.
    pub fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.objects.get(&handle).map(|entry| Arc::clone(entry.value()))
    }

    /// Takes an object out.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.objects.remove(&handle).map(|(_, object)| object)
    }

    /// All objects in the order of their handles, which is that of their making: no result may depend on the order of
    /// shards.
    pub fn all(&self) -> Vec<Arc<T>> {
        let mut all: Vec<(u64, Arc<T>)> =
            self.objects.iter().map(|entry| (*entry.key(), Arc::clone(entry.value()))).collect();
        all.sort_unstable_by_key(|(handle, _)| *handle);
        all.into_iter().map(|(_, object)| object).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_lists_objects_by_handle() {
        let registry = Registry::default();
        for handle in (0..1000).rev() {
            registry.insert(handle * 0x40, Arc::new(handle));
        }
        assert!(registry.all().iter().map(|object| **object).eq(0..1000));
    }

    #[test]
    fn registry_is_free_while_a_caller_holds_an_object() {
        let registry = Registry::default();
        registry.insert(1, Arc::new(10));
        let object = registry.get(1);
        // Each of these would wait for itself if `get` kept the shard's lock.
        registry.insert(1, Arc::new(11));
        assert_eq!(registry.remove(1).as_deref(), Some(&11));
        assert_eq!(object.as_deref(), Some(&10));
        assert!(registry.all().is_empty());
    }
}
