//! The end of user objects.

use crate::engine::driver::Driver;
use crate::engine::stream::queue;
use crate::engine::stream::state::Sched;

impl Sched {
    /// Lets the worker destroy the objects without references.
    pub fn bury_objects(&mut self, driver: &'static Driver) {
        let dead = std::mem::take(&mut self.graphs.objects.dead);
        queue::call_later(driver, self, dead);
    }
}
