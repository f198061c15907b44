"""Loops of other packages, run by their own interpreter: `peers.py` starts it and says how many updates to do.

python -m benchmarks.peer_loops NAME PAIRS.npz      then a line with a number of updates, answered by seconds, and so on

It needs what the peer needs and nothing of ours. Sizes are Maze's, the batch is 128, the networks are the released
ones. Threads are one or all, whichever is faster in a first try; JAX chooses its own.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

BATCH, WIDTH, GUIDE_WIDTH, LR, GUIDE_LR = 128, 256, 128, 5e-5, 1e-4
CLIP, EPS, LONG_RUN = 0.5, 1e-12, 1_000_000
"""Of ours, for JAX: largest norm of a gradient, Adam's epsilon, and the updates over which the learning rate decays."""
SCANNED = 32
"""Updates in one scan, as in a block of ours."""

Loop = Callable[[int], None]


def d3rlpy(obs: Any, act: Any) -> Loop:
    """BC of d3rlpy: its own replay buffer, its own update."""
    import d3rlpy  # pyright: ignore[reportMissingImports]

    peer: Any = d3rlpy
    ends = np.zeros(len(obs), np.float32)
    ends[-1] = 1
    dataset = peer.dataset.MDPDataset(obs, act, np.zeros(len(obs), np.float32), ends)
    encoder = peer.models.encoders.VectorEncoderFactory([WIDTH] * 3, activation="tanh")
    config = peer.algos.BCConfig(batch_size=BATCH, learning_rate=LR, encoder_factory=encoder)
    algorithm = config.create(device="cpu")
    algorithm.build_with_dataset(dataset)

    def run(count: int) -> None:
        for _ in range(count):
            algorithm.update(dataset.sample_transition_batch(BATCH))

    return run


def imitation(obs: Any, act: Any) -> Loop:
    """BC of imitation: its own loader and trainer, without its reports."""
    from gymnasium.spaces import Box
    from imitation.algorithms import bc  # pyright: ignore[reportMissingImports]
    from imitation.data.types import Transitions  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.policies import ActorCriticPolicy  # pyright: ignore[reportMissingImports]

    seen, acted = (Box(-10, 10, (x.shape[1],), np.float32) for x in (obs, act))
    made: Any = ActorCriticPolicy
    policy = made(seen, acted, lambda _: LR, net_arch=[WIDTH] * 3)  # pyright: ignore[reportUnknownLambdaType]
    kind: Any = Transitions
    pairs = kind(
        obs=obs, acts=act, infos=np.array([{}] * len(obs)), next_obs=obs, dones=np.zeros(len(obs), dtype=np.bool_)
    )
    trainer: Any = bc.BC(
        observation_space=seen,
        action_space=acted,
        demonstrations=pairs,
        batch_size=BATCH,
        policy=policy,
        optimizer_kwargs={"lr": LR},
        rng=np.random.default_rng(0),
        device="cpu",
    )

    def run(count: int) -> None:
        trainer.train(n_batches=count, log_interval=10**9, progress_bar=False)

    return run


def diffusers(obs: Any, act: Any) -> Loop:
    """A denoising step as diffusers' tutorial has it: its scheduler adds the noise; network and Adam are PyTorch's."""
    import torch
    from diffusers import DDPMScheduler  # pyright: ignore[reportPrivateImportUsage]

    scheduler: Any = DDPMScheduler(num_train_timesteps=1000, beta_schedule="sigmoid")
    pairs = torch.tensor(np.concatenate([obs, act], 1))
    size = pairs.shape[1]
    sizes = [size, *[GUIDE_WIDTH] * 3]
    layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairwise(sizes))
    tables = torch.nn.ModuleList(torch.nn.Embedding(1000, GUIDE_WIDTH) for _ in range(3))
    net = torch.nn.ModuleList([layers, tables, torch.nn.Linear(GUIDE_WIDTH, size)])
    adam = torch.optim.Adam(net.parameters(), lr=GUIDE_LR)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pairs), BATCH, shuffle=True)

    def forever() -> Any:
        while True:
            yield from loader

    batches = forever()

    def update() -> None:
        (x,) = next(batches)
        noise, t = torch.randn_like(x), torch.randint(0, 1000, (len(x),))
        h = scheduler.add_noise(x, noise, t)
        for layer, table in zip(layers, tables, strict=True):
            h = torch.relu(layer(h) + table(t))
        loss = torch.nn.functional.mse_loss(net[2](h), noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        adam.step()
        adam.zero_grad()

    def run(count: int) -> None:
        for _ in range(count):
            update()

    return run


def jax_bc(obs: Any, act: Any, members: int) -> Loop:
    """BC in JAX: `lax.scan` over updates in `vmap` over members, jitted; the state is updated in place (donated).

    Network, batch, gradient clipping, Adam and its linear decay are those of ours.
    """
    import jax  # pyright: ignore[reportMissingImports]

    j: Any = jax
    jnp, random, map_leaves = j.numpy, j.random, j.tree.map
    s, a = jnp.asarray(obs), jnp.asarray(act)
    sizes = [s.shape[1], WIDTH, WIDTH, WIDTH, a.shape[1]]

    def init(key: Any) -> Any:
        keys, orthogonal = random.split(key, len(sizes)), j.nn.initializers.orthogonal(2**0.5)
        return [(orthogonal(k, (m, n)), jnp.zeros(n)) for k, (m, n) in zip(keys, pairwise(sizes), strict=False)]

    def loss(net: Any, x: Any, y: Any) -> Any:
        for weight, bias in net[:-1]:
            x = jnp.tanh(x @ weight + bias)
        weight, bias = net[-1]
        return jnp.square(x @ weight + bias - y).mean()

    def update(state: Any, _: Any) -> Any:
        net, mean, square, key, n = state
        key, own = random.split(key)
        rows = random.randint(own, (BATCH,), 0, len(s))
        value, g = j.value_and_grad(loss)(net, s[rows], a[rows])
        norm = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in j.tree.leaves(g)))
        factor = jnp.minimum(1.0, CLIP / (norm + 1e-6))
        n = n + 1
        rate, root = LR * (1 - (n - 1) / LONG_RUN) / (1 - 0.9**n), jnp.sqrt(1 - 0.999**n)

        def next_mean(m: Any, x: Any) -> Any:
            return 0.9 * m + 0.1 * factor * x

        def next_square(v: Any, x: Any) -> Any:
            return 0.999 * v + 0.001 * jnp.square(factor * x)

        def step(w: Any, m: Any, v: Any) -> Any:
            return w - rate * m / (jnp.sqrt(v) / root + EPS)

        mean, square = map_leaves(next_mean, mean, g), map_leaves(next_square, square, g)
        return (map_leaves(step, net, mean, square), mean, square, key, n), value

    def scan(state: Any) -> Any:
        return j.lax.scan(update, state, None, length=SCANNED)

    compiled = j.jit(j.vmap(scan), donate_argnums=0)
    nets = j.vmap(init)(random.split(random.key(0), members))
    means, squares = map_leaves(jnp.zeros_like, nets), map_leaves(jnp.zeros_like, nets)
    state: Any = (nets, means, squares, random.split(random.key(1), members), jnp.zeros(members))

    def run(count: int) -> None:
        nonlocal state
        for _ in range(-(-count // SCANNED)):
            state, _ = compiled(state)
        j.block_until_ready(state)

    return run


LOOPS: dict[str, Callable[[Any, Any], Loop]] = {
    "d3rlpy": d3rlpy,
    "imitation": imitation,
    "diffusers": diffusers,
    "jax": lambda obs, act: jax_bc(obs, act, 1),
    "jax-8": lambda obs, act: jax_bc(obs, act, 8),
}


def timed(run: Loop, count: int) -> float:
    begun = time.perf_counter()
    run(count)
    return time.perf_counter() - begun


def choose_threads(run: Loop) -> dict[str, Any]:
    """Set PyTorch's threads to one or all, whichever is faster, and return what the Record says."""
    import torch

    tried: dict[int, float] = {}
    for threads in sorted({1, torch.get_num_threads()}, reverse=True):
        torch.set_num_threads(threads)
        tried[threads] = timed(run, 50)
    torch.set_num_threads(min(tried, key=lambda threads: tried[threads]))
    return {"threads": torch.get_num_threads(), "torch": torch.__version__}


def about_jax() -> dict[str, Any]:
    """Return what the Record says of JAX, whose threads are the cores that this process may use."""
    import jax  # pyright: ignore[reportMissingImports]

    peer: Any = jax
    return {"threads": len(os.sched_getaffinity(0)), "jax": peer.__version__}


def main() -> None:
    name, path = sys.argv[1:3]
    data = np.load(path)
    run = LOOPS[name](data["obs"], data["act"])
    run(20)
    print(json.dumps(about_jax() if name.startswith("jax") else choose_threads(run)), flush=True)
    for line in sys.stdin:
        begun = time.process_time()
        seconds = timed(run, int(line))
        print(json.dumps({"seconds": seconds, "cpu_seconds": time.process_time() - begun}), flush=True)


if __name__ == "__main__":
    main()
