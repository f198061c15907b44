"""Measure the defaults of `fit(BC())` one by one: averaged weights, weight decay, noise, normalisation, the network.

python -m scripts.training_defaults maze-25 fetch-pick-27 --out FILE

Each variant differs in one thing from BC with the updates that `fit` chooses, a learning rate of 1e-3 that decreases to
zero, and the network of `train` (256 or 512 wide, two hidden layers). Eight seeds are run from validation starts; the
winner can then be tested on evaluation starts. What FILE has already is not done again.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diffclone import BC, fit
from diffclone.data import Demonstrations
from diffclone.evaluation import evaluate
from diffclone.experiments.study.run import short_record
from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.model import Method
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training.members import replace_fields
from diffclone.training.search_plan import policy_network
from diffclone.training.suggestion import suggest

SEEDS, EPISODES, LONG_EPISODES = 8, 24, 6
BASE = "plain"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    BASE: {},
    "averaged weights": {"training.ema": 0.999},
    "averaged weights, constant rate": {"training.ema": 0.999, "training.decay": "constant"},
    "weight decay 0.1": {"training.weight_decay": 0.1},
    "noise 0.1 on states": {"state_noise": 0.1},
    "robust normalisation": {"normalisation": "robust"},
    "no normalisation": {"normalisation": "none"},
    "LayerNorm, residual, SiLU": {
        "network.layer_norm": True,
        "network.residual": True,
        "network.activation": "silu",
        "network.depth": 3,
    },
}
WIDE = "network of `fit`"
"""The network that `fit` chooses for these demonstrations, if it differs."""


def variants(demos: Demonstrations) -> dict[str, Method[Any]]:
    """Return the methods to compare."""
    usual = suggest(BC(), demos)
    base = replace_fields(usual, {"training.lr": 1e-3, "normalisation": "z-score", "network": policy_network(demos)})
    found: dict[str, Method[Any]] = {name: replace_fields(base, dict(own)) for name, own in VARIANTS.items()}
    if usual.network != base.network:
        found[WIDE] = replace_fields(base, {"network": usual.network})
    return found


def main() -> None:
    """Train and evaluate every variant on the settings, and append a Record of each."""
    parser = argparse.ArgumentParser(prog="training_defaults", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("settings", nargs="+", help="names of task settings")
    parser.add_argument("--out", type=Path, required=True, help="file to append Records to")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    out: Path = given.out
    done = {(r.results["setting"], r.results["variant"]) for r in (Record.read_all(out) if out.exists() else [])}
    for name in given.settings:
        setting = TASK_SETTINGS[name]
        demos = setting.load_demonstrations()
        episodes = LONG_EPISODES if TASKS[setting.task].metric == "return" else EPISODES
        for variant, method in variants(demos).items():
            if (name, variant) in done:
                continue
            policy = fit(method, demos, seeds=range(given.seeds), device="cpu", suggest=False, progress=False)
            options = setting.make_task_options()
            scores = evaluate(policy, setting.task, episodes=episodes, starts="validation", progress=False, **options)
            results = {"study": "defaults", "setting": name, "variant": variant, "snapshot": method.training.updates}
            record = short_record(policy, scores, results)
            record.append_to(out)
            print(f"{name}, {variant}: {record.results['success_rate']:.3f}", flush=True)


if __name__ == "__main__":
    main()
