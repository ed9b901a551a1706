"""Uses the driver through cuda.bindings: one call of each family, then everything freed but one
block. Prints what it took."""

from cuda.bindings import driver, nvrtc

SOURCE = b'extern "C" __global__ void scale(float *x, unsigned int n) {' \
         b' unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2.0f; }'
MIB = 1 << 20


def ok(result):
    """The values of a call that must succeed."""
    status, *values = result
    assert status == type(status)(0), status
    return values[0] if len(values) == 1 else tuple(values)


ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
context = ok(driver.cuDevicePrimaryCtxRetain(device))
ok(driver.cuCtxSetCurrent(context))
print("device", ok(driver.cuDeviceGetName(64, device)).split(b"\0")[0].decode())

# plain and pitched memory
plain = ok(driver.cuMemAlloc(24 * MIB))
pitched, pitch = ok(driver.cuMemAllocPitch(1000, 300, 4))

# stream-ordered memory
stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
ordered = [ok(driver.cuMemAllocAsync(size * MIB, stream)) for size in (1, 7, 33)]
for block in ordered:
    ok(driver.cuMemFreeAsync(block, stream))
ok(driver.cuStreamSynchronize(stream))

# physical memory, mapped
prop = driver.CUmemAllocationProp()
prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
prop.location.id = 0
granularity = ok(driver.cuMemGetAllocationGranularity(
    prop, driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
size = 5 * granularity
handle = ok(driver.cuMemCreate(size, prop, 0))
address = ok(driver.cuMemAddressReserve(size, 0, driver.CUdeviceptr(0), 0))
ok(driver.cuMemMap(address, size, 0, handle, 0))
ok(driver.cuMemRelease(handle))
ok(driver.cuMemUnmap(address, size))
ok(driver.cuMemAddressFree(address, size))

# managed and pinned memory
managed = ok(driver.cuMemAllocManaged(
    3 * MIB, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
pinned = ok(driver.cuMemHostAlloc(2 * MIB, 0))

# a kernel that NVRTC compiles
program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"scale.cu", 0, [], []))
ok(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"]))
ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
ok(nvrtc.nvrtcGetPTX(program, ptx))
module = ok(driver.cuModuleLoadData(ptx))
kernel = ok(driver.cuModuleGetFunction(module, b"scale"))
import ctypes  # noqa: E402  (only the launch needs it)
values = ((plain, 1024), (ctypes.c_void_p, ctypes.c_uint))
for _ in range(25):
    ok(driver.cuLaunchKernel(kernel, 8, 1, 1, 128, 1, 1, 0, stream, values, 0))
ok(driver.cuCtxSynchronize())

free, total = ok(driver.cuMemGetInfo())
assert 0 < free < total
ok(driver.cuMemFree(pitched))
ok(driver.cuMemFree(managed))
ok(driver.cuMemFreeHost(pinned))
print("done, holding", 24 * MIB)
