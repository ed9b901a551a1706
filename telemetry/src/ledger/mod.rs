//! Quotas: what the processes of a job, of a user or of a group may reserve of each GPU together.
//!
//! A ledger is one structure with two uses. That of a job lies in its segment; those of users and groups are
//! files of their own, one for each user in each scope ([`scope`]). A process is a member of several of them and
//! a request must fit into all. Reserving is two steps on the member's own word ([`words`]), no lock, no
//! daemon; only a request that does not fit at once takes the slow path, which clears the words of dead
//! members and lets one contender at a time try again ([`contended`]).
//!
//! Writer side ([`Ledger`], [`SharedLedger`]): runs inside the watched program, so nothing here may panic. The
//! launcher's and the administrator's side is [`LedgerView`], [`ScopeDirectory`] and [`ScopeReport`].

mod amount;
mod contended;
mod file;
mod gpus;
mod holders;
mod home;
mod join;
pub mod layout;
mod living;
mod member;
mod peek;
mod place;
mod precedence;
mod row;
pub mod scope;
mod stated;
mod sum;
mod sweep;
mod view;
pub mod words;

pub use amount::{Amount, Limit};
pub use file::{Access, LedgerError};
pub(crate) use file::{fill, fill_with, set_context, set_limits};
pub use member::Ledger;
pub use peek::{LedgerPeek, Share};
pub use place::Place;
pub use row::{LedgerRow, Refused};
pub use scope::{Repaired, ScopeDirectory, ScopeMember, ScopeReport, SharedLedger, SharedPeek};
pub use stated::{state, stated};
pub use view::{GpuUse, LedgerView, MemberUse};
