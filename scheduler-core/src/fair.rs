//! Fair shares: GPU time of each user, decaying.

use std::collections::BTreeMap;

use crate::settings::FairShare;
use crate::units::Millis;
use radrm_base::UserId;

/// GPU time that decays by half in each half-life. What is being used right now is a rate, so that
/// nothing has to be done while time goes by.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    gpu_ms: u64,
    gpus: u64,
    at: Millis,
}

impl Account {
    fn value(&self, now: Millis, half_life: Millis) -> u64 {
        let span = now.minus(self.at).0;
        decayed(self.gpu_ms, span, half_life.0).saturating_add(self.gpus.saturating_mul(span))
    }

    fn bring_to(&mut self, now: Millis, half_life: Millis) {
        self.gpu_ms = self.value(now, half_life);
        self.at = self.at.max(now);
    }
}

/// `value * 2^(-span / half_life)`, straight between whole half-lives: only integers, so that every
/// machine agrees.
fn decayed(value: u64, span: u64, half_life: u64) -> u64 {
    if half_life == 0 {
        return 0;
    }
    let whole = span / half_life;
    if whole >= 64 {
        return 0;
    }
    let value = value >> whole;
    let part = u128::from(value) * u128::from(span % half_life) / (2 * u128::from(half_life));
    value - u64::try_from(part).unwrap_or(value)
}

/// All users' accounts and their sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    users: BTreeMap<UserId, Account>,
    total: Account,
}

impl Ledger {
    /// The user holds `gpus` more devices from now on, or fewer.
    pub(crate) fn hold(&mut self, user: UserId, gpus: i64, now: Millis, fair: &FairShare) {
        for account in [self.users.entry(user).or_default(), &mut self.total] {
            account.bring_to(now, fair.half_life);
            account.gpus = account.gpus.saturating_add_signed(gpus);
        }
    }

    /// GPU time used before.
    pub(crate) fn add(&mut self, user: UserId, gpu_ms: u64, now: Millis, fair: &FairShare) {
        for account in [self.users.entry(user).or_default(), &mut self.total] {
            account.bring_to(now, fair.half_life);
            account.gpu_ms = account.gpu_ms.saturating_add(gpu_ms);
        }
    }

    /// GPU time of a user, decayed to `now`.
    pub(crate) fn usage(&self, user: UserId, now: Millis, half_life: Millis) -> u64 {
        self.users.get(&user).map_or(0, |account| account.value(now, half_life))
    }

    /// All users with what they used.
    pub(crate) fn all(&self, now: Millis, half_life: Millis) -> impl Iterator<Item = (UserId, u64)> + '_ {
        self.users.iter().map(move |(&user, account)| (user, account.value(now, half_life)))
    }

    /// Set-back of a user's jobs: [`FairShare::most`] times the user's part of what all users used.
    pub(crate) fn penalty(&self, user: UserId, now: Millis, fair: &FairShare) -> Millis {
        let used = self.usage(user, now, fair.half_life);
        let all = self.total.value(now, fair.half_life).max(used);
        if all == 0 {
            return Millis::ZERO;
        }
        let part = u128::from(fair.most.0) * u128::from(used) / u128::from(all);
        Millis(u64::try_from(part).unwrap_or(fair.most.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAIR: FairShare = FairShare { half_life: Millis(1000), most: Millis(800) };

    #[test]
    fn use_counts_half_after_a_half_life() {
        assert_eq!(decayed(4096, 0, 1000), 4096);
        assert_eq!(decayed(4096, 1000, 1000), 2048);
        assert_eq!(decayed(4096, 2000, 1000), 1024);
        assert_eq!(decayed(4096, 500, 1000), 3072);
        assert_eq!(decayed(u64::MAX, 1_000_000, 1000), 0);
        assert_eq!(decayed(5, 1, 0), 0);
    }

    #[test]
    fn who_used_more_is_set_back_more() {
        let mut ledger = Ledger::default();
        let (a, b) = (UserId(1), UserId(2));
        ledger.hold(a, 3, Millis(0), &FAIR);
        ledger.hold(b, 1, Millis(0), &FAIR);
        assert_eq!(ledger.penalty(a, Millis(100), &FAIR), Millis(600));
        assert_eq!(ledger.penalty(b, Millis(100), &FAIR), Millis(200));
        ledger.hold(a, -3, Millis(100), &FAIR);
        assert!(ledger.penalty(a, Millis(5000), &FAIR) < Millis(20));
        assert_eq!(ledger.penalty(UserId(9), Millis(100), &FAIR), Millis(0));
    }
}
