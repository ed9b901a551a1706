"""Uses the GPU from multiprocessing workers: forked, spawned, and by a fork server."""

import multiprocessing


def hold(mib):
    """Takes `mib` MiB in this process and keeps it."""
    from cuda.bindings import driver

    def ok(result):
        status, *values = result
        assert status == type(status)(0), status
        return values[0] if len(values) == 1 else tuple(values)

    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))))
    return int(ok(driver.cuMemAlloc(mib << 20))) != 0


if __name__ == "__main__":
    first = 1
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2, maxtasksperchild=1) as pool:
            assert all(pool.map(hold, [first, first + 1], chunksize=1))
        first += 2
    print("done")
