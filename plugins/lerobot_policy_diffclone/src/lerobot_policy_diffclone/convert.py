"""Convert a diffclone policy to a LeRobot policy, and back.

python -m lerobot_policy_diffclone.convert to-lerobot runs/maze lerobot-maze
python -m lerobot_policy_diffclone.convert to-diffclone outputs/train/…/pretrained_model maze
"""

import argparse
import math
import sys
from pathlib import Path

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.factory import make_pre_post_processors
from lerobot.processor import NormalizerProcessorStep
from lerobot.utils.constants import ACTION, OBS_STATE

from diffclone.data.normaliser import MARGIN, Normaliser
from diffclone.errors import DiffcloneError, InvalidFile
from diffclone.files import refuse_existing
from diffclone.policy import Policy
from diffclone.settings import to_dict
from diffclone.training.guide import TrainedGuide
from diffclone.training.runs import Run
from lerobot_policy_diffclone.configuration_diffclone import DiffcloneConfig
from lerobot_policy_diffclone.modeling_diffclone import DiffclonePolicy
from lerobot_policy_diffclone.processor_diffclone import make_diffclone_pre_post_processors

SPREAD = 2.0
"""Standard deviations that stand for the range of actions if LeRobot's statistics have no minimum and maximum."""


def to_lerobot(source: Path, out: Path, *, member: int = 0) -> None:
    """Write one member of a diffclone run, or of the folder of a policy, as a LeRobot policy with its processors.

    The folder of a policy has no guide: training the result further in LeRobot begins with the guide.
    """
    refuse_existing(out)
    policy = Run(source).policy() if (source / "run.json").exists() else Policy.load(source)
    policy, normaliser = policy[member], policy.normaliser
    limit, bounds, dims = float(normaliser.obs_limit), policy.bounds, policy.dims
    config = DiffcloneConfig(
        method=to_dict(policy.method),
        **({} if policy.guide is None else {"guide_steps": 0}),
        input_features={OBS_STATE: PolicyFeature(FeatureType.STATE, (dims.obs,))},
        output_features={ACTION: PolicyFeature(FeatureType.ACTION, (dims.act,))},
        observation_limit=limit if math.isfinite(limit) else None,
        action_bounds=None if bounds is None else [edge.tolist() for edge in bounds],
        device="cpu",
    )
    stats = {
        OBS_STATE: {"mean": normaliser.obs_mean, "std": normaliser.obs_std},
        ACTION: {
            "mean": normaliser.act_mean,
            "std": normaliser.act_std,
            "min": normaliser.act_low,
            "max": normaliser.act_high,
        },
    }
    converted = DiffclonePolicy(config, dataset_stats=stats)
    converted.net.load_state_dict(policy.net.state_dict())
    if policy.guide is not None and converted.guide is not None:
        converted.guide.load_state_dict(policy.guide.weights.state_dict())
    converted.seed.fill_(int(policy.members[0]["seed"]))
    converted.save_pretrained(out)
    for pipeline in make_diffclone_pre_post_processors(config, stats):
        pipeline.save_pretrained(out)


def to_diffclone(folder: Path) -> Policy:
    """Return a LeRobot policy of this package as a diffclone policy with its guide. `save` writes it to a folder."""
    config = PreTrainedConfig.from_pretrained(folder)
    if not isinstance(config, DiffcloneConfig):
        raise InvalidFile(f"{folder} has a policy of type {config.type}; only diffclone can be converted.")
    policy = DiffclonePolicy.from_pretrained(folder, config=config)
    preprocessor, _ = make_pre_post_processors(config, str(folder))
    (step,) = [s for s in preprocessor.steps if isinstance(s, NormalizerProcessorStep)]
    keys = list(config.observation_features)
    # LeRobot stores the statistics of a feature with one number as scalars.
    found = {
        key: {name: torch.as_tensor(v).float().reshape(-1) for name, v in values.items()}
        for key, values in step.stats.items()
    }
    act = found[ACTION]
    low, high = (act.get(name, act["mean"] + sign * SPREAD * act["std"]) for name, sign in (("min", -1), ("max", 1)))
    limit = torch.tensor(math.inf if config.observation_limit is None else config.observation_limit)
    normaliser = Normaliser(
        torch.cat([found[key]["mean"] for key in keys]),
        torch.cat([found[key]["std"] + step.eps for key in keys]) * policy.obs_varies.cpu(),
        act["mean"],
        act["std"] * policy.act_varies.cpu(),
        low - MARGIN * (high - low),
        high + MARGIN * (high - low),
        limit,
    )
    trained = int(policy.updates) >= config.first_policy_step
    guide, windows = policy.guide if trained else None, normaliser.windows(policy.chunks)
    edges = config.action_bounds
    return Policy(
        policy.method,
        policy.net.cpu(),
        normaliser,
        [{"seed": int(policy.seed)}],
        None if edges is None else (torch.tensor(edges[0]), torch.tensor(edges[1])),
        {"meta": {"source": "LeRobot"}},
        guide=None if guide is None else TrainedGuide(policy.method, windows, lambda: {"guide": guide.cpu()}),
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m lerobot_policy_diffclone.convert", description=__doc__)
    parser.add_argument("direction", choices=["to-lerobot", "to-diffclone"])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--member", type=int, default=0)
    arguments = parser.parse_args()
    try:
        if arguments.direction == "to-lerobot":
            to_lerobot(arguments.source, arguments.out, member=arguments.member)
        else:
            refuse_existing(arguments.out)
            to_diffclone(arguments.source).save(arguments.out)
    except DiffcloneError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"wrote {arguments.out}\n")


if __name__ == "__main__":
    main()
