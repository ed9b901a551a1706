//! The wrapped entry points, and what is known about each.

use core::ffi::CStr;

/// A wrapped entry point: index into the table that this build generated. Stays inside of this library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryId(pub(crate) u16);

/// Default stream that a null stream handle means to an entry point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flavour {
    /// The legacy default stream.
    Legacy,
    /// The calling thread's default stream (`_ptsz`).
    Ptsz,
    /// The calling thread's default stream, synchronous calls (`_ptds`).
    #[allow(dead_code, reason = "part of the table's vocabulary; no wrapped entry has it today")]
    Ptds,
}

/// Library that an entry point belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Library {
    /// libcuda.so.1
    Cuda,
    /// libnvidia-ml.so.1
    Nvml,
}

/// Description of an entry point.
pub(crate) struct Info {
    /// Start of its name in [`NAMES`].
    name: u16,
    /// Length of that name without version and flavour, bytes.
    base: u8,
    /// Id in the driver's table, by which the segment knows the entry point.
    pub(crate) table_id: u16,
    /// CUDA version of this form; 0 where the table has none.
    pub(crate) version: u32,
    /// Default-stream flavour.
    pub(crate) flavour: Flavour,
    /// Library.
    pub(crate) library: Library,
    /// True if it takes memory of a device.
    pub(crate) is_request: bool,
}

unsafe extern "C" {
    /// From each word to the shell of the entry point of its place, bytes.
    static RADRM_WRAPPERS: [i32; ENTRY_COUNT];
}

impl Info {
    fn name(&self) -> &'static [u8] {
        NAMES.get(usize::from(self.name)..).unwrap_or_default()
    }

    /// Exported name.
    pub(crate) fn symbol(&self) -> &'static CStr {
        CStr::from_bytes_until_nul(self.name()).unwrap_or_default()
    }

    /// Name without version and flavour.
    pub(crate) fn base(&self) -> &'static [u8] {
        self.name().get(..usize::from(self.base)).unwrap_or_default()
    }
}

impl EntryId {
    /// Description of the entry point.
    pub(crate) fn info(self) -> Option<&'static Info> {
        INFO.get(usize::from(self.0))
    }

    /// The shell.
    pub(crate) fn wrapper(self) -> *const () {
        let place = (&raw const RADRM_WRAPPERS).cast::<i32>().wrapping_add(usize::from(self.0) % ENTRY_COUNT);
        // SAFETY: a word of the table.
        place.cast::<u8>().wrapping_offset(unsafe { place.read() } as isize).cast()
    }

    /// Id in the driver's table (`radrm_cuda_abi::table`), by which the segment knows the entry point. It is the
    /// same in every build.
    pub(crate) fn table_id(self) -> u16 {
        self.info().map_or(u16::MAX, |i| i.table_id)
    }

    /// Default-stream flavour.
    pub(crate) fn flavour(self) -> Flavour {
        self.info().map_or(Flavour::Legacy, |i| i.flavour)
    }
}

/// The entry point that exports a name.
#[cfg_attr(test, allow(dead_code, reason = "only look-ups of names need it"))]
pub(crate) fn find(symbol: &CStr) -> Option<EntryId> {
    let at = INFO.binary_search_by(|i| i.symbol().cmp(symbol)).ok()?;
    u16::try_from(at).ok().map(EntryId)
}

/// All entry points of a library.
pub(crate) fn of(library: Library) -> impl Iterator<Item = (EntryId, &'static Info)> {
    (0u16..).map(EntryId).zip(INFO.iter()).filter(move |(_, info)| info.library == library)
}

include!(concat!(env!("OUT_DIR"), "/entries.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_their_places() {
        let entry = find(c"cuMemAlloc_v2").unwrap();
        let info = entry.info().unwrap();
        assert_eq!((info.symbol(), info.base()), (c"cuMemAlloc_v2", &b"cuMemAlloc"[..]));
        let last = EntryId(u16::try_from(ENTRY_COUNT).unwrap() - 1);
        assert_eq!(find(last.info().unwrap().symbol()), Some(last));
        assert!(INFO.windows(2).all(|pair| pair[0].symbol() < pair[1].symbol()));
    }

    #[test]
    fn the_segment_has_a_counter_for_every_entry_point() {
        use crate::telemetry::layout::ENTRIES;
        assert!(INFO.iter().all(|info| usize::from(info.table_id) < ENTRIES));
    }
}
