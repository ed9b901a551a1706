//! Copying bytes where nothing may panic.

/// Copies what fits: the shorter of the two decides.
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
