"""JAX under a quota, with its own preallocation: takes until it is refused, and goes on. Prints a line of JSON."""

import ctypes
import json

import jax
import jax.numpy as jnp

device = jax.devices()[0]
first = jnp.ones(10).sum().block_until_ready()
kept, refused = [], None
try:
    for _ in range(1000):
        kept.append(jnp.ones(64 << 20, dtype=jnp.float32).block_until_ready())
except Exception as error:  # its class has moved between versions
    refused = str(error)[:300]
kept.clear()
after = float((jnp.ones((512, 512)) @ jnp.ones((512, 512))).sum())
free, total = ctypes.c_size_t(), ctypes.c_size_t()
ctypes.CDLL("libcuda.so.1").cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
stats = device.memory_stats() or {}
print(json.dumps({
    "limit": 6 << 30, "seen_total": total.value, "refused": refused and "RESOURCE_EXHAUSTED" in refused and refused,
    "pool_limit": stats.get("bytes_limit"), "after": after, "right": 512.0**3,
}))
