"""Compare the defaults of BC and DBC, and guidance near the expert's states, on Gymnasium's pendulum.

python -m scripts.pendulum_defaults --out docs/records/pendulum.jsonl

The expert switches between the largest torques until the pendulum is nearly upright, then holds it there. Because of
the first runs of this comparison the default of DBC has no guidance near the expert's states.
"""

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from diffclone import BC, DBC, Demonstrations, evaluate, fit
from diffclone.model import Method
from diffclone.records import Record
from diffclone.training.runs import evaluation_record

ENVIRONMENT = "Pendulum-v1"
DEMONSTRATIONS, SEEDS, EPISODES = 50, 5, 100
METHODS: dict[str, Method[Any]] = {
    "BC": BC(),
    "DBC": DBC(),
    "DBC, κ = 1, λ = 0.3": DBC(coefficient=0.3, away=1.0),
    "DBC, κ = 1, λ = 0.1": DBC(coefficient=0.1, away=1.0),
}


def act(obs: Any) -> float:
    """Return the expert's torque."""
    cosine, sine, speed = obs
    angle = np.arctan2(sine, cosine)
    if abs(angle) < 0.5:
        return float(np.clip(-16 * angle - 4 * speed, -2, 2))
    energy = 0.5 * speed**2 + 10 * (cosine - 1)
    return 2.0 * float(np.sign(-energy * speed if speed else 1.0))


def collect() -> tuple[Demonstrations, float]:
    """Return episodes of the expert, and its mean return."""
    env: Any = gymnasium.make(ENVIRONMENT)
    seen: list[Any] = []
    acts: list[list[float]] = []
    ends: list[int] = []
    total = 0.0
    for episode in range(DEMONSTRATIONS):
        obs, ended = env.reset(seed=episode)[0], False
        while not ended:
            seen.append(obs)
            acts.append([act(obs)])
            obs, reward, terminated, truncated, _ = env.step(np.array(acts[-1], dtype=np.float32))
            total, ended = total + float(reward), terminated or truncated
        ends.append(len(seen))
    env.close()
    demos = Demonstrations.from_arrays(
        np.array(seen, dtype=np.float32), np.array(acts, dtype=np.float32), episode_ends=np.array(ends)
    )
    return demos, total / DEMONSTRATIONS


def main() -> None:
    """Train and evaluate each method, and append a Record of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="file to append Records to")
    out: Path = parser.parse_args().out
    demos, expert = collect()
    results = {"task": ENVIRONMENT, "mean_return": expert, "episodes": DEMONSTRATIONS}
    Record("expert", {}, [], {}, results, "cpu", 0.0).append_to(out)
    for name, method in METHODS.items():
        policy = fit(method, demos, seeds=range(SEEDS), device="cpu", progress=False)
        scores = evaluate(policy, ENVIRONMENT, episodes=EPISODES, progress=False)
        record = evaluation_record(policy, scores, results={"label": name})
        record.append_to(out)
        print(f"{name}: {record.results['mean_return']:.1f}", flush=True)


if __name__ == "__main__":
    main()
