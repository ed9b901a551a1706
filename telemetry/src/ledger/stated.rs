//! Limits as text, for processes that cannot reach the ledger: they get no memory, and see the limit as the total.
//!
//! Scopes are separated by `;`, the limits of a scope by `,`: `GPU=AMOUNT`, or `AMOUNT` for every GPU that is not named. A
//! GPU is 32 hexadecimal digits of its uuid, an amount bytes or a share in hundredths of a percent with a `%`.
//!
//! [`stated`] runs inside the watched program, so nothing there may panic or allocate.

use super::{Amount, Limit};
use std::fmt::Write as _;

/// The limits of several scopes as text; empty if there are none.
pub fn state<'l>(scopes: impl IntoIterator<Item = &'l [Limit]>) -> String {
    let mut text = String::new();
    for limits in scopes.into_iter().filter(|limits| !limits.is_empty()) {
        if !text.is_empty() {
            text.push(';');
        }
        for (at, limit) in limits.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            for byte in limit.gpu.iter().flatten() {
                let _ = write!(text, "{byte:02x}");
            }
            if limit.gpu.is_some() {
                text.push('=');
            }
            let _ = match limit.amount {
                Amount::Unlimited => write!(text, "{}", u64::MAX),
                Amount::Bytes(bytes) => write!(text, "{bytes}"),
                Amount::PerMyriad(share) => write!(text, "{share}%"),
            };
        }
    }
    text
}

/// The lowest limit that the text states for a GPU with this much memory, bytes; `u64::MAX`: none that can be read.
pub fn stated(text: &[u8], uuid: Option<&[u8; 16]>, total: u64) -> u64 {
    let scopes = text.split(|byte| *byte == b';');
    scopes
        .filter_map(|scope| in_scope(scope, uuid))
        .map(|amount| amount.bytes(total))
        .min()
        .unwrap_or(u64::MAX)
}

fn in_scope(scope: &[u8], uuid: Option<&[u8; 16]>) -> Option<Amount> {
    let mut general = None;
    for limit in scope.split(|byte| *byte == b',') {
        match limit.iter().position(|byte| *byte == b'=') {
            None => general = amount(limit),
            Some(at) => {
                let (gpu, rest) = limit.split_at_checked(at)?;
                if uuid.is_some_and(|uuid| names(gpu, uuid)) {
                    return amount(rest.strip_prefix(b"=")?);
                }
            }
        }
    }
    general
}

fn names(digits: &[u8], uuid: &[u8; 16]) -> bool {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8));
    rest.is_empty() && bytes.eq(uuid.iter().map(|byte| Some(*byte)))
}

fn amount(text: &[u8]) -> Option<Amount> {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    match text.strip_suffix(b"%") {
        Some(share) => Some(Amount::PerMyriad(u32::try_from(number(share)?).ok()?)),
        None => {
            number(text).map(|bytes| if bytes == u64::MAX { Amount::Unlimited } else { Amount::Bytes(bytes) })
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const A: [u8; 16] = [0xab; 16];
    const B: [u8; 16] = [7; 16];

    #[test]
    fn each_gpu_gets_the_lowest_limit_of_all_scopes() {
        let limit = |gpu, amount| Limit { gpu, amount };
        let job = [limit(Some(A), Amount::Bytes(500)), limit(None, Amount::PerMyriad(5_000))];
        let user = [limit(None, Amount::Bytes(600))];
        let text = state([&job[..], &[], &user]);
        assert_eq!(text, "abababababababababababababababab=500,5000%;600");
        let of = |uuid: Option<&[u8; 16]>, total| stated(text.as_bytes(), uuid, total);
        assert_eq!(
            [of(Some(&A), 1000), of(Some(&B), 1000), of(Some(&B), 2000), of(None, 100)],
            [500, 500, 600, 50]
        );
        assert_eq!(state([]), "");
        assert_eq!(stated(state([&[limit(None, Amount::Unlimited)][..]]).as_bytes(), None, 9), u64::MAX);
    }

    #[test]
    fn text_that_is_no_limit_states_none() {
        for text in ["", ";", "x", "=", "ab=5", "5x", "-1", "%", "99999999999999999999", "7777=", ",;,"] {
            assert_eq!(stated(text.as_bytes(), Some(&B), 100), u64::MAX, "{text}");
        }
    }
}
