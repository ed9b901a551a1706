//! Texts as programs pass them: read up to a limit, and kept where a program refers to them by a handle.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arena;
use crate::bytes;
use crate::telemetry::RangeText;
use crate::telemetry::layout::RANGE_NAME_BYTES;

/// Bytes that are read of a text.
pub(super) const KEPT: usize = RANGE_NAME_BYTES;
/// Registered texts that are kept; further ones have the first one's handle.
const TEXTS: usize = 8192;
/// Names of categories that are kept.
const CATEGORIES: usize = 256;

/// Text for a handle that could not be kept.
const TOO_MANY: &[u8] = b"(more names than are kept)";

/// A text that was read.
#[derive(Clone, Copy)]
pub(super) struct Text<'t> {
    pub(super) bytes: &'t [u8],
    pub(super) is_cut: bool,
    /// The number of a step, which is not part of the bytes.
    pub(super) step: Option<u64>,
}

impl Text<'_> {
    pub(super) const NONE: Self = Self { bytes: b"(no name)", is_cut: false, step: None };
    pub(super) const EMPTY: Self = Self { bytes: b"", ..Self::NONE };
}

impl<'t> Text<'t> {
    /// The message of a range without domain and category.
    pub(super) fn alone(self) -> RangeText<'t> {
        RangeText { message: self.bytes, is_cut: self.is_cut, step: self.step, ..RangeText::default() }
    }
}

/// Reads a C string up to the limit.
///
/// # Safety
/// Null, or a C string that lives as long as the answer is used.
pub(super) unsafe fn narrow<'t>(text: *const c_char) -> Text<'t> {
    if text.is_null() {
        return Text::NONE;
    }
    // SAFETY: reads no byte behind the terminating zero.
    let len = unsafe { libc::strnlen(text, KEPT + 1) };
    // SAFETY: so many bytes are there.
    let bytes = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), len.min(KEPT)) };
    Text { bytes, is_cut: len > KEPT, step: None }
}

/// Reads a wide string into a buffer, as UTF-8.
///
/// # Safety
/// Null, or a string of `wchar_t`.
pub(super) unsafe fn wide(text: *const u32, buffer: &mut [u8; KEPT]) -> Text<'_> {
    if text.is_null() {
        return Text::NONE;
    }
    let mut len: usize = 0;
    let mut at = text;
    let is_cut = loop {
        // SAFETY: the zero at the end was not passed.
        let unit = unsafe { at.read_unaligned() };
        if unit == 0 {
            break false;
        }
        let mut place = [0; 4];
        let encoded = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut place);
        let Some(to) = buffer.get_mut(len..len.saturating_add(encoded.len())) else { break true };
        bytes::copy(to, encoded.as_bytes());
        len += encoded.len();
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    };
    Text { bytes: buffer.get(..len).unwrap_or(&[]), is_cut, step: None }
}

/// A text in memory of our own.
#[repr(C)]
struct Stored {
    len: u32,
    is_cut: u32,
}

static STORED: [AtomicPtr<Stored>; TEXTS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; TEXTS];
static HANDED_OUT: AtomicU32 = AtomicU32::new(0);

/// Bits of a handle that are the text's place; above them is the number of a step, plus 1.
const PLACE_BITS: u32 = 16;
const _: () = assert!(TEXTS < 1 << PLACE_BITS);

/// Places of texts that stand for numbered ones; 0: free.
static NUMBERED: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

/// As [`register`] for a message. A program that registers `step 1`, `step 2`... keeps one text, and its steps their
/// numbers.
pub(super) fn register_message(text: Text<'_>) -> *mut c_void {
    let split = RangeText::split(text.bytes).filter(|(_, step)| !text.is_cut && step >> 46 == 0);
    let Some((bytes, step)) = split else { return register(text) };
    let base = Text { bytes, ..text };
    for place in &NUMBERED {
        let mut number = place.load(Ordering::Relaxed);
        if number == 0 {
            let new = register(base).addr();
            if new == 1 {
                break;
            }
            // Another thread may have been faster, perhaps with another text.
            match place.compare_exchange(0, new as u32, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => number = new as u32,
                Err(other) => number = other,
            }
        }
        let handle = number as usize;
        if registered(core::ptr::without_provenance(handle)).bytes == bytes {
            return core::ptr::without_provenance_mut(handle | (step as usize + 1) << PLACE_BITS);
        }
    }
    register(text)
}

/// Keeps a text; gives its handle, never null.
pub(super) fn register(text: Text<'_>) -> *mut c_void {
    let number = HANDED_OUT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
        ((n as usize) < TEXTS - 1).then(|| n.saturating_add(1))
    });
    let number = number.map_or(0, |n| n as usize + 1);
    if let (Some(place), true) = (STORED.get(number), number > 0) {
        // Release: pairs with the Acquire in `registered`.
        place.store(store(text).unwrap_or(core::ptr::null_mut()), Ordering::Release);
    }
    core::ptr::without_provenance_mut(number + 1)
}

fn store(text: Text<'_>) -> Option<*mut Stored> {
    let block = arena::alloc(size_of::<Stored>() + text.bytes.len())?.cast::<Stored>().as_ptr();
    // SAFETY: the block is new, of this size, and aligned to a cache line.
    unsafe {
        block.write(Stored { len: text.bytes.len() as u32, is_cut: text.is_cut.into() });
        let to = core::slice::from_raw_parts_mut(block.add(1).cast::<u8>(), text.bytes.len());
        bytes::copy(to, text.bytes);
    }
    Some(block)
}

/// The text behind a handle.
pub(super) fn registered(handle: *const c_void) -> Text<'static> {
    let place = handle.addr() & ((1 << PLACE_BITS) - 1);
    let Some(number) = place.checked_sub(1) else { return Text::NONE };
    let stored = STORED.get(number).map_or(core::ptr::null_mut(), |place| place.load(Ordering::Acquire));
    Text { step: (handle.addr() >> PLACE_BITS).checked_sub(1).map(|step| step as u64), ..read(stored) }
}

fn read(stored: *const Stored) -> Text<'static> {
    if stored.is_null() {
        return Text { bytes: TOO_MANY, ..Text::NONE };
    }
    // SAFETY: published after it was written, never freed, and as long as it says.
    unsafe {
        let Stored { len, is_cut } = stored.read();
        let bytes = core::slice::from_raw_parts(stored.add(1).cast(), len as usize);
        Text { bytes, is_cut: is_cut != 0, step: None }
    }
}

/// The name of a domain; of the default domain, whose handle is null, the empty one.
pub(super) fn domain(handle: *const c_void) -> Text<'static> {
    if handle.is_null() { Text::EMPTY } else { registered(handle) }
}

struct Category {
    /// Domain above, category below, plus 1; 0: free.
    key: AtomicU64,
    name: AtomicPtr<Stored>,
}

static NAMED: [Category; CATEGORIES] =
    [const { Category { key: AtomicU64::new(0), name: AtomicPtr::new(core::ptr::null_mut()) } }; CATEGORIES];

fn category_key(domain: *const c_void, category: u32) -> u64 {
    ((domain.addr() as u64 & 0x7fff_ffff) << 32 | u64::from(category)).saturating_add(1)
}

fn category_places(key: u64) -> impl Iterator<Item = &'static Category> {
    let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize;
    (0..8).filter_map(move |probe| NAMED.get((start + probe) % CATEGORIES))
}

/// Names a category of a domain; a name that was given before stays.
pub(super) fn name_category(domain: *const c_void, category: u32, text: Text<'_>) {
    let key = category_key(domain, category);
    for place in category_places(key) {
        match place.key.compare_exchange(0, key, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {
                // Release: pairs with the Acquire in `category`.
                place.name.store(store(text).unwrap_or(core::ptr::null_mut()), Ordering::Release);
                return;
            }
            Err(seen) if seen == key => return,
            Err(_) => {}
        }
    }
}

/// The name of a category; empty where it has none.
pub(super) fn category(domain: *const c_void, category: u32) -> Text<'static> {
    if category == 0 {
        return Text::EMPTY;
    }
    let key = category_key(domain, category);
    for place in category_places(key) {
        match place.key.load(Ordering::Acquire) {
            0 => break,
            seen if seen == key => {
                let name = place.name.load(Ordering::Acquire);
                return if name.is_null() { Text::EMPTY } else { read(name) };
            }
            _ => {}
        }
    }
    Text::EMPTY
}

/// A range's text in memory that is not the program's.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    bytes: [u8; KEPT],
    message: u16,
    domain: u16,
    category: u16,
    is_cut: bool,
    step: Option<u64>,
}

/// Copies a range's text; its parts are cut where they do not fit together.
pub(super) fn keep(to: &mut Kept, text: RangeText<'_>) {
    let mut len = 0usize;
    let mut put = |part: &[u8]| {
        let room = to.bytes.get_mut(len..).unwrap_or(&mut []);
        let kept = part.len().min(room.len());
        bytes::copy(room, part);
        len += kept;
        kept as u16
    };
    // Domain and category first: a long message must not take their room.
    to.domain = put(text.domain);
    to.category = put(text.category);
    to.message = put(text.message);
    to.is_cut = text.is_cut || usize::from(to.message) < text.message.len();
    to.step = text.step;
}

/// The text again.
pub(super) fn kept(from: &Kept) -> RangeText<'_> {
    let domain = usize::from(from.domain);
    let category = domain.saturating_add(from.category.into());
    let message = category.saturating_add(from.message.into());
    RangeText {
        domain: from.bytes.get(..domain).unwrap_or(&[]),
        category: from.bytes.get(domain..category).unwrap_or(&[]),
        message: from.bytes.get(category..message).unwrap_or(&[]),
        is_cut: from.is_cut,
        step: from.step,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_up_to_the_limit() {
        // SAFETY: C strings.
        let read = unsafe { narrow(c"forward".as_ptr()) };
        assert_eq!((read.bytes, read.is_cut), (&b"forward"[..], false));
        let long = std::ffi::CString::new(vec![b'x'; 65_536]).unwrap();
        // SAFETY: as above.
        let read = unsafe { narrow(long.as_ptr()) };
        assert_eq!((read.bytes.len(), read.is_cut), (KEPT, true));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { narrow(core::ptr::null()) }.bytes, b"(no name)");
    }

    #[test]
    fn wide_texts_become_utf_8_and_bad_ones_are_replaced() {
        let mut buffer = [0; KEPT];
        let text = ['ä' as u32, 0xd800, 'x' as u32, 0];
        // SAFETY: it ends with a zero.
        let read = unsafe { wide(text.as_ptr(), &mut buffer) };
        assert_eq!(std::str::from_utf8(read.bytes), Ok("ä\u{fffd}x"));
        let long: Vec<u32> = std::iter::repeat_n('ä' as u32, 500).chain([0]).collect();
        // SAFETY: as above.
        let read = unsafe { wide(long.as_ptr(), &mut buffer) };
        assert_eq!((read.bytes.len(), read.is_cut), (KEPT, true));
    }

    #[test]
    fn registered_texts_come_back_and_are_not_without_bound() {
        let text = Text { bytes: b"epoch", ..Text::NONE };
        let handle = register(text);
        assert!(!handle.is_null());
        assert_eq!(registered(handle).bytes, b"epoch");
        assert_eq!(domain(core::ptr::null()).bytes, b"");
        name_category(handle, 7, Text { bytes: b"io", ..Text::NONE });
        assert_eq!(category(handle, 7).bytes, b"io");
        assert_eq!((category(handle, 8).bytes, category(core::ptr::null(), 7).bytes), (&b""[..], &b""[..]));
        // As many steps as a training has take one place.
        let before = HANDED_OUT.load(Ordering::Relaxed);
        for step in 0..3 * TEXTS as u64 {
            let text = format!("step {step}");
            let handle = register_message(Text { bytes: text.as_bytes(), ..Text::NONE });
            let read = registered(handle);
            assert_eq!((read.bytes, read.step, read.is_cut), (&b"step"[..], Some(step), false));
        }
        assert_eq!(HANDED_OUT.load(Ordering::Relaxed), before + 1);
        let layer = register_message(Text { bytes: b"layer 3", ..Text::NONE });
        assert_eq!((registered(layer).bytes, registered(layer).step), (&b"layer 3"[..], None));
        for _ in 0..2 * TEXTS {
            assert!(
                registered(register(text)).bytes == b"epoch"
                    || HANDED_OUT.load(Ordering::Relaxed) as usize == TEXTS - 1
            );
        }
        assert_eq!(registered(register(text)).bytes, TOO_MANY);
        assert_eq!(registered(core::ptr::without_provenance(usize::MAX)).bytes, TOO_MANY);
    }

    #[test]
    fn a_kept_text_has_its_domain_even_with_a_long_message() {
        let mut place =
            Kept { bytes: [0; KEPT], message: 0, domain: 0, category: 0, is_cut: false, step: None };
        let message = [b'm'; 2 * KEPT];
        keep(
            &mut place,
            RangeText { message: &message, domain: b"d", category: b"cc", ..RangeText::default() },
        );
        let text = kept(&place);
        assert_eq!((text.domain, text.category, text.message.len()), (&b"d"[..], &b"cc"[..], KEPT - 3));
        assert!(text.is_cut);
    }
}
