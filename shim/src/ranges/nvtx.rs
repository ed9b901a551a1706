//! NVTX, as its public headers define the interface for tools.
//!
//! A program's first NVTX call loads the library that `NVTX_INJECTION64_PATH` names and calls its
//! [`InitializeInjectionNvtx2`], which fills in the functions that later calls go to. Each of a program's libraries has
//! its own NVTX, and each calls here once. The numbers of functions are those of `NvtxCallbackIdCore` and
//! `NvtxCallbackIdCore2`.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::text::{self, KEPT, Text};
use super::{end, guarded, mark, pop, push, start};
use crate::telemetry::RangeText;
use crate::{mode, resolve};

/// A table of functions that is asked for by its number.
type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;
/// Places of the functions of a module: each a pointer to where the function's address stands.
type FunctionTable = *mut *mut *const c_void;

/// `NVTX_ETID_CALLBACKS`.
const CALLBACKS: u32 = 1;
/// `NVTX_CB_MODULE_CORE`.
const CORE: c_int = 1;
/// `NVTX_CB_MODULE_CORE2`.
const CORE2: c_int = 5;
/// Answer to a call that is not followed: `NVTX_NO_PUSH_POP_TRACKING`.
const NOT_TRACKED: c_int = -2;

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct ExportTable {
    struct_size: usize,
    get_module_function_table: Option<unsafe extern "C" fn(c_int, *mut FunctionTable, *mut c_uint) -> c_int>,
}

/// `nvtxEventAttributes_t`; what comes after the message is of no interest here.
#[repr(C)]
pub(super) struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

const _: () = assert!(size_of::<Attributes>() == 48 && core::mem::offset_of!(Attributes, message) == 40);

/// `NVTX_MESSAGE_TYPE_ASCII`, `_UNICODE` and `_REGISTERED`.
const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;

/// The message of attributes, and their category.
///
/// # Safety
/// Null, or attributes as NVTX wants them.
unsafe fn message<'t>(attributes: *const Attributes, buffer: &'t mut [u8; KEPT]) -> (Text<'t>, u32) {
    // SAFETY: the caller's promise.
    let Some(attributes) = (unsafe { attributes.as_ref() }) else { return (Text::NONE, 0) };
    if usize::from(attributes.size) < size_of::<Attributes>() {
        return (Text::NONE, 0);
    }
    let message = match attributes.message_type {
        // SAFETY: a C string by its type.
        ASCII => unsafe { text::narrow(attributes.message.cast()) },
        // SAFETY: a string of `wchar_t` by its type.
        UNICODE => unsafe { text::wide(attributes.message.cast(), buffer) },
        REGISTERED => text::registered(attributes.message),
        _ => Text::NONE,
    };
    (message, attributes.category)
}

/// Calls `then` with the text of attributes.
///
/// # Safety
/// As for [`message`]; the domain is null or a handle.
unsafe fn with_text<R>(
    domain: *const c_void,
    attributes: *const Attributes,
    then: impl FnOnce(RangeText<'_>) -> R,
) -> R {
    let mut buffer = [0; KEPT];
    // SAFETY: the caller's promise.
    let (message, category) = unsafe { message(attributes, &mut buffer) };
    then(RangeText {
        domain: text::domain(domain).bytes,
        category: text::category(domain, category).bytes,
        ..message.alone()
    })
}

/// Calls `then` with a wide string.
///
/// # Safety
/// As for [`text::wide`].
unsafe fn with_wide<R>(text: *const u32, then: impl FnOnce(Text<'_>) -> R) -> R {
    let mut buffer = [0; KEPT];
    // SAFETY: the caller's promise.
    then(unsafe { text::wide(text, &mut buffer) })
}

fn id_of(domain: *const c_void) -> u64 {
    domain.addr() as u64
}

fn level(level: u32) -> c_int {
    c_int::try_from(level).unwrap_or(c_int::MAX)
}

// What follows are the functions that NVTX calls in our place, with the arguments of the program's own call: its texts
// are C strings, strings of `wchar_t` or attributes, its domains null or handles from `domain_create_*`.

unsafe extern "C" fn mark_ex(attributes: *const Attributes) {
    // SAFETY: see above.
    unsafe { domain_mark_ex(core::ptr::null(), attributes) }
}

unsafe extern "C" fn mark_a(message: *const c_char) {
    // SAFETY: see above.
    guarded((), |tls| mark(tls, unsafe { text::narrow(message) }.alone()));
}

unsafe extern "C" fn mark_w(message: *const u32) {
    // SAFETY: see above.
    guarded((), |tls| unsafe { with_wide(message, |text| mark(tls, text.alone())) });
}

unsafe extern "C" fn range_start_ex(attributes: *const Attributes) -> u64 {
    // SAFETY: see above.
    unsafe { domain_range_start_ex(core::ptr::null(), attributes) }
}

unsafe extern "C" fn range_start_a(message: *const c_char) -> u64 {
    // SAFETY: see above.
    guarded(0, |tls| start(tls, unsafe { text::narrow(message) }.alone()))
}

unsafe extern "C" fn range_start_w(message: *const u32) -> u64 {
    // SAFETY: see above.
    guarded(0, |tls| unsafe { with_wide(message, |text| start(tls, text.alone())) })
}

unsafe extern "C" fn range_end(id: u64) {
    guarded((), |tls| end(tls, id));
}

unsafe extern "C" fn range_push_ex(attributes: *const Attributes) -> c_int {
    // SAFETY: see above.
    unsafe { domain_range_push_ex(core::ptr::null(), attributes) }
}

unsafe extern "C" fn range_push_a(message: *const c_char) -> c_int {
    // SAFETY: see above.
    guarded(NOT_TRACKED, |tls| level(push(tls, 0, unsafe { text::narrow(message) }.alone())))
}

unsafe extern "C" fn range_push_w(message: *const u32) -> c_int {
    // SAFETY: see above.
    guarded(NOT_TRACKED, |tls| unsafe { with_wide(message, |text| level(push(tls, 0, text.alone()))) })
}

unsafe extern "C" fn range_pop() -> c_int {
    guarded(NOT_TRACKED, |tls| pop(tls, 0).map_or(NOT_TRACKED, level))
}

unsafe extern "C" fn name_category_a(category: u32, name: *const c_char) {
    // SAFETY: see above.
    unsafe { domain_name_category_a(core::ptr::null(), category, name) }
}

unsafe extern "C" fn name_category_w(category: u32, name: *const u32) {
    // SAFETY: see above.
    unsafe { domain_name_category_w(core::ptr::null(), category, name) }
}

unsafe extern "C" fn domain_mark_ex(domain: *const c_void, attributes: *const Attributes) {
    // SAFETY: see above.
    guarded((), |tls| unsafe { with_text(domain, attributes, |text| mark(tls, text)) });
}

unsafe extern "C" fn domain_range_start_ex(domain: *const c_void, attributes: *const Attributes) -> u64 {
    // SAFETY: see above.
    guarded(0, |tls| unsafe { with_text(domain, attributes, |text| start(tls, text)) })
}

unsafe extern "C" fn domain_range_end(_domain: *const c_void, id: u64) {
    guarded((), |tls| end(tls, id));
}

unsafe extern "C" fn domain_range_push_ex(domain: *const c_void, attributes: *const Attributes) -> c_int {
    let opened = |text: RangeText<'_>, tls: &_| level(push(tls, id_of(domain), text));
    // SAFETY: see above.
    guarded(NOT_TRACKED, |tls| unsafe { with_text(domain, attributes, |text| opened(text, tls)) })
}

unsafe extern "C" fn domain_range_pop(domain: *const c_void) -> c_int {
    guarded(NOT_TRACKED, |tls| pop(tls, id_of(domain)).map_or(NOT_TRACKED, level))
}

unsafe extern "C" fn domain_name_category_a(domain: *const c_void, category: u32, name: *const c_char) {
    // SAFETY: see above.
    guarded((), |_| text::name_category(domain, category, unsafe { text::narrow(name) }));
}

unsafe extern "C" fn domain_name_category_w(domain: *const c_void, category: u32, name: *const u32) {
    // SAFETY: see above.
    guarded((), |_| unsafe { with_wide(name, |text| text::name_category(domain, category, text)) });
}

unsafe extern "C" fn domain_register_string_a(_domain: *const c_void, text: *const c_char) -> *mut c_void {
    // SAFETY: see above.
    guarded(core::ptr::null_mut(), |_| text::register_message(unsafe { text::narrow(text) }))
}

unsafe extern "C" fn domain_register_string_w(_domain: *const c_void, text: *const u32) -> *mut c_void {
    // SAFETY: see above.
    guarded(core::ptr::null_mut(), |_| unsafe { with_wide(text, text::register_message) })
}

unsafe extern "C" fn domain_create_a(name: *const c_char) -> *mut c_void {
    // SAFETY: see above.
    guarded(core::ptr::null_mut(), |_| text::register(unsafe { text::narrow(name) }))
}

unsafe extern "C" fn domain_create_w(name: *const u32) -> *mut c_void {
    // SAFETY: see above.
    guarded(core::ptr::null_mut(), |_| unsafe { with_wide(name, text::register) })
}

/// A module's table of callbacks: so many places, each null or where an address stands.
struct Places {
    at: *mut *mut *const c_void,
    count: usize,
    is_any: bool,
}

impl Places {
    /// Enters one function. A list of them would be a table, in which the loader writes each address in every program of
    /// a job.
    #[inline(never)]
    fn put(&mut self, number: usize, function: *const c_void) {
        if number >= self.count {
            return;
        }
        // SAFETY: the table has so many places, each null or where an address stands.
        unsafe {
            let place = self.at.add(number).read();
            if !place.is_null() {
                place.write(function);
                self.is_any = true;
            }
        }
    }

    /// Enters our functions of a module.
    fn fill(&mut self, module: c_int) {
        if module == CORE {
            self.put(1, mark_ex as *const c_void);
            self.put(2, mark_a as *const c_void);
            self.put(3, mark_w as *const c_void);
            self.put(4, range_start_ex as *const c_void);
            self.put(5, range_start_a as *const c_void);
            self.put(6, range_start_w as *const c_void);
            self.put(7, range_end as *const c_void);
            self.put(8, range_push_ex as *const c_void);
            self.put(9, range_push_a as *const c_void);
            self.put(10, range_push_w as *const c_void);
            self.put(11, range_pop as *const c_void);
            self.put(12, name_category_a as *const c_void);
            self.put(13, name_category_w as *const c_void);
        } else {
            self.put(1, domain_mark_ex as *const c_void);
            self.put(2, domain_range_start_ex as *const c_void);
            self.put(3, domain_range_end as *const c_void);
            self.put(4, domain_range_push_ex as *const c_void);
            self.put(5, domain_range_pop as *const c_void);
            self.put(8, domain_name_category_a as *const c_void);
            self.put(9, domain_name_category_w as *const c_void);
            self.put(10, domain_register_string_a as *const c_void);
            self.put(11, domain_register_string_w as *const c_void);
            self.put(12, domain_create_a as *const c_void);
            self.put(13, domain_create_w as *const c_void);
        }
    }
}

/// Enters our functions into one NVTX of the program. 1: done; 0: NVTX does nothing from now on.
///
/// # Safety
/// NVTX's own contract: `get` gives a table of callbacks for its number, or null.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(super) unsafe extern "C" fn InitializeInjectionNvtx2(get: Option<GetExportTable>) -> c_int {
    guarded(0, |_| {
        // Not preloaded, the library sees none of the driver's calls.
        if mode::is_to_be_bypassed() || mode::is_denied() || !is_preloaded() {
            return 0;
        }
        // SAFETY: the caller's promise.
        let table = get.map_or(core::ptr::null(), |get| unsafe { get(CALLBACKS) });
        // SAFETY: null, or the table of this number.
        let Some(table) = (unsafe { table.cast::<ExportTable>().as_ref() }) else { return 0 };
        if table.struct_size < size_of::<ExportTable>() {
            return 0;
        }
        let Some(get) = table.get_module_function_table else { return 0 };
        let mut is_any = 0;
        for module in [CORE, CORE2] {
            let (mut at, mut count) = (core::ptr::null_mut(), 0);
            // SAFETY: both places live over the call.
            if unsafe { get(module, &raw mut at, &raw mut count) } == 0 || at.is_null() {
                continue;
            }
            let mut places = Places { at, count: count as usize, is_any: false };
            places.fill(module);
            is_any |= c_int::from(places.is_any);
        }
        is_any
    })
}

/// Returns true if this library stands in the program's global scope.
fn is_preloaded() -> bool {
    // Not by RTLD_DEFAULT, which begins with the scope of the caller.
    let Some(program) = resolve::program() else { return false };
    // SAFETY: a look-up of a name in a scope that is there.
    let found = unsafe { libc::dlsym(program, c"InitializeInjectionNvtx2".as_ptr()) };
    found.cast_const() == InitializeInjectionNvtx2 as *const c_void
}
