"""Training steps with JAX: dry_run_jax.py [GIB]. Holds arrays of so many GiB (1) besides, and prints the peak in bytes."""

import sys

import jax
import jax.numpy as jnp

key = jax.random.PRNGKey(0)


def loss(weights, images):
    dimensions = ("NHWC", "HWIO", "NHWC")
    hidden = jax.nn.relu(jax.lax.conv_general_dilated(images, weights["filter"], (1, 1), "SAME", dimension_numbers=dimensions))
    return ((hidden.mean((1, 2)) @ weights["matrix"]) ** 2).mean()


@jax.jit
def step(weights, images):
    return jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, jax.grad(loss)(weights, images))


assert jax.default_backend() == "gpu", jax.default_backend()
weights = {"filter": jax.random.normal(key, (3, 3, 3, 64)), "matrix": jax.random.normal(key, (64, 1000))}
images = jax.random.normal(key, (32, 64, 64, 3))
for _ in range(3):
    weights = step(weights, images)
square = jax.random.normal(key, (256, 256))
for function in (jnp.linalg.inv, jnp.linalg.svd, jnp.linalg.eigh, jnp.fft.fft2, jnp.sort):
    jax.block_until_ready(function(square))
kept = [jnp.zeros((256, 1024, 1024), jnp.float32) for _ in range(int((sys.argv[1:] or ["1"])[0]))]
jax.block_until_ready(kept)
print(jax.local_devices()[0].memory_stats()["peak_bytes_in_use"])
