//! Room of a server, in shares by user.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bounds of a server's room, in units of what is counted, such as connections or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Units of all users together.
    pub all: usize,
    /// Units of one user.
    pub of_user: usize,
    /// Units of `all` that only privileged users get.
    pub reserved: usize,
}

/// User of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Number of the user. `None` where the system does not report it: such clients count as one user.
    pub uid: Option<u32>,
    /// True if the reserved units are for this user too.
    pub is_privileged: bool,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The user has as much as one user may have.
    OfUser,
    /// All users together have as much as there is for such a user.
    OfAll,
}

/// Room of a server.
#[derive(Debug)]
pub struct Room {
    bounds: Bounds,
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    ordinary: usize,
    by_user: BTreeMap<Option<u32>, usize>,
}

impl Room {
    /// Returns an empty room.
    #[must_use]
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, taken: Mutex::default(), freed: Condvar::new() })
    }

    /// Takes units until the share is dropped.
    ///
    /// # Errors
    /// There is no room for them.
    pub fn take(self: &Arc<Self>, user: User, units: usize) -> Result<Share, Full> {
        self.enter(&mut self.taken(), user, units)
    }

    /// As [`Room::take`], and waits until the deadline for others to leave.
    ///
    /// # Errors
    /// There is no room for them by then.
    pub fn wait(self: &Arc<Self>, user: User, units: usize, deadline: Instant) -> Result<Share, Full> {
        let mut taken = self.taken();
        loop {
            let entered = self.enter(&mut taken, user, units);
            let left = deadline.saturating_duration_since(Instant::now());
            if entered.is_ok() || left == Duration::ZERO {
                return entered;
            }
            taken = self.freed.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn enter(self: &Arc<Self>, taken: &mut Taken, user: User, units: usize) -> Result<Share, Full> {
        let Bounds { all, of_user, reserved } = self.bounds;
        let own = taken.by_user.get(&user.uid).copied().unwrap_or(0);
        let fits = |held: usize, bound: usize| held.checked_add(units).is_some_and(|sum| sum <= bound);
        if !fits(own, of_user) {
            return Err(Full::OfUser);
        }
        let is_room = user.is_privileged || fits(taken.ordinary, all.saturating_sub(reserved));
        if !is_room || !fits(taken.all, all) {
            return Err(Full::OfAll);
        }
        taken.all += units;
        taken.ordinary += if user.is_privileged { 0 } else { units };
        taken.by_user.insert(user.uid, own + units);
        Ok(Share { room: Arc::clone(self), user, units })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Units that are taken as long as this lives.
#[derive(Debug)]
pub struct Share {
    room: Arc<Room>,
    user: User,
    units: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        taken.all -= self.units;
        taken.ordinary -= if self.user.is_privileged { 0 } else { self.units };
        if let Some(own) = taken.by_user.get_mut(&self.user.uid) {
            *own -= self.units;
            if *own == 0 {
                taken.by_user.remove(&self.user.uid);
            }
        }
        drop(taken);
        self.room.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordinary(uid: u32) -> User {
        User { uid: Some(uid), is_privileged: false }
    }

    const ROOT: User = User { uid: Some(0), is_privileged: true };

    #[test]
    fn one_user_leaves_room_for_others_and_all_leave_room_for_root() {
        let room = Room::new(Bounds { all: 10, of_user: 4, reserved: 3 });
        let hold = |user: User| std::iter::from_fn(|| room.take(user, 1).ok()).take(20).collect::<Vec<_>>();
        let first = hold(ordinary(1));
        assert_eq!(first.len(), 4);
        let unknown = hold(User { uid: None, is_privileged: false });
        assert_eq!(unknown.len(), 3, "the rest is reserved");
        assert_eq!(room.take(ordinary(3), 1).err(), Some(Full::OfAll));
        assert_eq!(room.take(ordinary(1), 1).err(), Some(Full::OfUser));
        let root = hold(ROOT);
        assert_eq!(root.len(), 3);
        drop(unknown);
        assert_eq!(hold(ROOT).len(), 1, "no user has more than of_user");
        let third = hold(ordinary(3));
        assert_eq!(third.len(), 3);
        drop((first, third, root));
        assert!(room.taken().by_user.is_empty());
        assert_eq!(hold(ordinary(1)).len(), 4, "what was dropped is free");
    }

    #[test]
    fn a_share_may_have_many_units_and_none_overflows() {
        let room = Room::new(Bounds { all: 100, of_user: 60, reserved: 0 });
        let share = room.take(ordinary(1), 50);
        assert!(share.is_ok() && room.take(ordinary(1), 11).is_err());
        assert!(room.take(ordinary(1), usize::MAX).is_err());
        assert!(room.take(ordinary(2), 51).is_err() && room.take(ordinary(2), 50).is_ok());
        assert!(room.wait(ordinary(1), 11, Instant::now()).is_err());
        let waiting = {
            let room = Arc::clone(&room);
            std::thread::spawn(move || {
                room.wait(ordinary(1), 11, Instant::now() + Duration::from_secs(600)).is_ok()
            })
        };
        drop(share);
        assert!(waiting.join().unwrap());
    }
}
