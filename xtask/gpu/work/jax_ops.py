"""Operations of JAX: prints their results."""

import jax
import jax.numpy as jnp

print("platform", jax.devices()[0].platform)
x = jnp.arange(1 << 20, dtype=jnp.float32) % 17
print("sum", float(x.sum()))
a = ((jnp.arange(256 * 256) % 7) - 3).reshape(256, 256).astype(jnp.float32)


@jax.jit
def loss(w):
    return jnp.square(jnp.tanh(a @ w)).mean()


w = jnp.full((256, 8), 0.01, dtype=jnp.float32)
for _ in range(3):
    w = w - 0.1 * jax.grad(loss)(w)
print("loss", "%.4f" % float(loss(w)))
print("scan", float(jax.lax.scan(lambda c, v: (c + v, c), 0.0, jnp.arange(100.0))[0]))
try:
    jnp.zeros(1 << 44, dtype=jnp.float32).block_until_ready()
except Exception as error:  # its class has moved between versions
    print("refused", "RESOURCE_EXHAUSTED" in str(error) or "memory" in str(error).lower())
print("after", float(jnp.ones(10).sum()))
