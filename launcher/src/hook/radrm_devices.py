"""What the driver says of GPUs, as this process numbers them."""

import ctypes


def uuid(device):
    """UUID of a device, without its prefix; empty if the driver does not say."""
    driver = ctypes.CDLL("libcuda.so.1")
    handle, out = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if driver.cuDeviceGet(ctypes.byref(handle), device) or driver.cuDeviceGetUuid_v2(out, handle):
        return ""
    text = bytes(out).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def of_torch(torch, device):
    """The same as PyTorch writes it; before 2.5 it knows none."""
    found = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return uuid(device) if found is None else str(found)
