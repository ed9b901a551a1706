//! Names of ranges and marks: the same text gives the same number.

use radrm_base::step;

use super::Word;
use crate::layout::*;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sys;
use crate::writer::Writer;

/// Places that are looked at for a name.
const PROBES: usize = 64;
/// Longest wait of a thread for the number that another one is about to hand out, ns. The other one allocates memory
/// meanwhile.
const TIMEOUT_NS: u64 = 100_000_000;
/// Names by which the table grows.
const STEP: u64 = 64;
/// Set in `text_len` if the name was longer.
pub(crate) const CUT: u64 = 1 << 32;

/// Number of a name within its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(u16);

impl NameId {
    /// All names that have no number of their own.
    pub const OTHER: Self = Self(0);

    /// The number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The name with this number; those beyond the table are [`NameId::OTHER`].
    pub const fn from_number(number: u64) -> Self {
        if number < RANGE_NAMES as u64 { Self(number as u16) } else { Self::OTHER }
    }
}

/// Text by which a program names a range: kept as `message [domain, category]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeText<'t> {
    /// The message.
    pub message: &'t [u8],
    /// Its domain; empty: the default one.
    pub domain: &'t [u8],
    /// Its category; empty: none.
    pub category: &'t [u8],
    /// The message was longer.
    pub is_cut: bool,
    /// The number of a step, of a message that was split already.
    pub step: Option<u64>,
}

impl<'t> RangeText<'t> {
    /// The message of a step without its number, and the number; see [`step::numbered`].
    pub fn split(message: &[u8]) -> Option<(&[u8], u64)> {
        step::numbered(message)
    }

    /// The text without the number of a step, and that number.
    fn folded(self) -> (Self, Option<u64>) {
        match Self::split(self.message) {
            Some((message, number)) if !self.is_cut && self.step.is_none() => {
                (Self { message, ..self }, Some(number))
            }
            _ => (Self { step: None, ..self }, self.step),
        }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        let has = [!self.domain.is_empty(), !self.category.is_empty()];
        let of = |is: bool, text: &'static [u8]| if is { text } else { &[] };
        let [domain, category] = has;
        [
            self.message,
            of(domain || category, b" ["),
            self.domain,
            of(domain && category, b", "),
            self.category,
            of(domain || category, b"]"),
        ]
        .into_iter()
        .flatten()
        .copied()
    }

    /// FNV-1a; never 0.
    fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for part in [self.domain, self.category, self.message] {
            for byte in part {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
            hash = (hash ^ 0x1ff).wrapping_mul(0x0100_0000_01b3);
        }
        hash.max(1)
    }
}

impl Writer {
    /// The number of a name, and the number of the step that is part of the text.
    pub fn range_name(&self, text: RangeText<'_>) -> (NameId, Option<u64>) {
        let (text, step) = text.folded();
        let id = if self.has_ranges() { self.find_name(&text) } else { None };
        if id.is_none() {
            self.count_range(Word::Other);
        }
        (id.unwrap_or(NameId::OTHER), step)
    }

    fn find_name(&self, text: &RangeText<'_>) -> Option<NameId> {
        // SAFETY: the keys are allocated (`has_ranges`); RANGE_KEYS of them, atomics only.
        let keys = unsafe { self.at::<[RangeKey; RANGE_KEYS]>(RANGE_KEYS_AT).as_ref() };
        let hash = text.hash();
        // FNV's lower bits are its best.
        let start = hash as usize % RANGE_KEYS;
        for probe in 0..PROBES {
            let key = keys.get((start + probe) % RANGE_KEYS)?;
            let seen = match key.hash.load(Acquire) {
                0 if self.range_word(Word::Names).load(Relaxed) >= RANGE_NAMES as u64 - 1 => return None,
                0 => match key.hash.compare_exchange(0, hash, Acquire, Acquire) {
                    Ok(_) => return self.new_name(key, text),
                    Err(seen) => seen,
                },
                seen => seen,
            };
            if seen == hash {
                return self.known_name(key);
            }
        }
        None
    }

    /// The number of a name whose hash was entered before; waits for it while another thread is about to hand it out.
    #[inline]
    fn known_name(&self, key: &RangeKey) -> Option<NameId> {
        let mut number = key.number.load(Acquire);
        if number == 0 {
            number = self.awaited_name(key);
        }
        let id = NameId::from_number(number.checked_sub(1)?);
        (id != NameId::OTHER).then_some(id)
    }

    #[cold]
    #[inline(never)]
    fn awaited_name(&self, key: &RangeKey) -> u64 {
        let until = self.now().saturating_add(TIMEOUT_NS);
        while self.now() < until {
            match key.number.load(Acquire) {
                0 => sys::yield_now(),
                number => return number,
            }
        }
        // That thread is gone or was interrupted by this one: nothing waits for it again.
        number_once(key, NameId::OTHER).unwrap_or_else(|number| number)
    }

    /// Hands out a number for a name whose hash was entered just now.
    #[cold]
    #[inline(never)]
    fn new_name(&self, key: &RangeKey, text: &RangeText<'_>) -> Option<NameId> {
        let number = self.range_word(Word::Names).fetch_add(1, Relaxed).saturating_add(1);
        let has_room = number < RANGE_NAMES as u64
            && self.grow_upto(
                self.range_word(Word::NamesReady),
                RANGE_NAMES_AT,
                STEP * 512,
                (number + 1).div_ceil(STEP),
            );
        let cell = if has_room { self.range_name_cell(NameId::from_number(number)) } else { None };
        let id = cell.map_or(NameId::OTHER, |cell| {
            cell.name(text);
            NameId::from_number(number)
        });
        let given = number_once(key, id).ok()?;
        (given > 1).then_some(id)
    }

    /// The figures of a name; those of "(other)" are there with the first name.
    pub(super) fn range_name_cell(&self, name: NameId) -> Option<&RangeNameCell> {
        let number = u64::from(name.number());
        let ready = self.range_word(Word::NamesReady);
        if !self.grow_upto(ready, RANGE_NAMES_AT, STEP * 512, (number + 1).div_ceil(STEP)) {
            return None;
        }
        // SAFETY: allocated (just above), the number below RANGE_NAMES; atomics only.
        Some(unsafe { self.at::<RangeNameCell>(RANGE_NAMES_AT + number * 512).as_ref() })
    }
}

/// Hands out the number of a name, unless that was done; gives what stands in the key, or else stood there.
fn number_once(key: &RangeKey, id: NameId) -> Result<u64, u64> {
    let given = u64::from(id.number()) + 1;
    // Release: pairs with the Acquire of those that look the name up.
    key.number.compare_exchange(0, given, Release, Acquire).map(|_| given)
}

impl RangeNameCell {
    fn name(&self, text: &RangeText<'_>) {
        let mut bytes = text.bytes();
        let mut len = 0;
        for place in &self.text {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(bytes.by_ref()) {
                *to = from;
                len += 1;
            }
            place.store(u64::from_ne_bytes(word), Relaxed);
        }
        let is_cut = text.is_cut || bytes.next().is_some();
        // Release: the reader copies the text after it has seen its length.
        self.text_len.store((len + 1) | if is_cut { CUT } else { 0 }, Release);
    }
}

/// Keeps the largest value that a word was given.
#[inline]
pub(super) fn raise(word: &AtomicU64, value: u64) {
    if value > word.load(Relaxed) {
        word.fetch_max(value, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'t>(message: &'t str, domain: &'t str, category: &'t str) -> RangeText<'t> {
        RangeText {
            message: message.as_bytes(),
            domain: domain.as_bytes(),
            category: category.as_bytes(),
            ..RangeText::default()
        }
    }

    #[test]
    fn domain_and_category_are_part_of_a_name() {
        let shown = |text: RangeText| String::from_utf8(text.bytes().collect()).unwrap();
        assert_eq!(shown(text("load", "", "")), "load");
        assert_eq!(shown(text("load", "io", "")), "load [io]");
        assert_eq!(shown(text("load", "", "disk")), "load [disk]");
        assert_eq!(shown(text("load", "io", "disk")), "load [io, disk]");
        let all = [
            text("a", "b", ""),
            text("a", "", "b"),
            text("ab", "", ""),
            text("", "ab", ""),
            text("", "", ""),
        ];
        let hashes: std::collections::HashSet<u64> = all.iter().map(RangeText::hash).collect();
        assert_eq!(hashes.len(), all.len());
    }

    #[test]
    fn steps_have_one_name_and_a_number() {
        assert_eq!(text("step 7", "d", "").folded(), (text("step", "d", ""), Some(7)));
        assert_eq!(text("layer7", "d", "").folded(), (text("layer7", "d", ""), None));
    }
}
