//! Identifier of the GPU behind an NVML handle, in the driver's terms.

use core::ffi::{CStr, c_char, c_uint};

use radrm_cuda_abi::*;

use crate::resolve;

/// The driver's identifier of the GPU or the MIG instance behind a handle.
pub(super) fn of(device: nvmlDevice_t) -> Option<[u8; 16]> {
    let ask = resolve::nvml_symbol(c"nvmlDeviceGetUUID")?;
    type Ask = unsafe extern "C-unwind" fn(nvmlDevice_t, *mut c_char, c_uint) -> nvmlReturn_t;
    // SAFETY: NVML exports the function of this name with this prototype.
    let ask = unsafe { core::mem::transmute::<*mut (), Ask>(ask) };
    let mut text = [0u8; NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    // SAFETY: NVML checks the handle, and writes at most as much as the room that it was given.
    let answer = unsafe { ask(device, text.as_mut_ptr().cast(), NVML_DEVICE_UUID_V2_BUFFER_SIZE as c_uint) };
    let text = CStr::from_bytes_until_nul(&text).ok().filter(|_| answer.is_ok())?;
    parse(text.to_bytes())
}

/// The 16 bytes of `GPU-8f3a…` or `MIG-8f3a…`, as `cuDeviceGetUuid_v2` gives them. An instance of a driver
/// before R470, `MIG-GPU-8f3a…/1/0`, has none of its own: to `cuDeviceGetUuid` it is its GPU.
fn parse(text: &[u8]) -> Option<[u8; 16]> {
    let rest = text.strip_prefix(b"MIG-").unwrap_or(text);
    let rest = rest.strip_prefix(b"GPU-").unwrap_or(rest);
    let mut digits = rest.iter().take_while(|c| **c != b'/').filter(|c| **c != b'-').map(|c| hex(*c));
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        *byte = digits.next()?? << 4 | digits.next()??;
    }
    (rest.len() < text.len() && digits.next().is_none()).then_some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_uuid_is_the_drivers_bytes() {
        let bytes = [0x8f, 0x3a, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xa, 0xb, 0xc, 0xff];
        for text in [
            "GPU-8f3a0001-0203-0405-0607-08090a0b0cff",
            "MIG-8F3A0001-0203-0405-0607-08090A0B0CFF",
            "MIG-GPU-8f3a0001-0203-0405-0607-08090a0b0cff/13/0",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(bytes), "{text}");
        }
        for text in
            ["", "GPU-", "8f3a0001-0203-0405-0607-08090a0b0cff", "GPU-8f3a0001-0203-0405-0607-08090a0b0c"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"GPU-8f3a0001-0203-0405-0607-08090a0b0cff0"), None);
        assert_eq!(parse(b"GPU-8f3a0001-0203-0405-0607-08090a0b0cfg"), None);
    }
}
