"""Compare scores that detect failures of a policy at run time.

python -m benchmarks.monitoring RUN …                  print one table per run of dbc on fetch-pick or ant-reach
python -m benchmarks.monitoring RUN --out FILE         also append a Record to FILE

M_i   = max over the steps of episode i of a score
q     = conformal threshold of M at level α, of successful episodes from validation starts at the default noise
AUROC = P(M of a failure > M of a success) + ½ P(they are equal)      of M / q, over all members
early = the same, with M over half as many steps as the median calibration episode has

Test episodes come from evaluation starts at several levels of noise, also above that of the demonstrations. All scores
use the same calibration and test episodes. A failure may last longer than a success, which raises the maximum of any
score: the row "steps so far" shows the AUROC of the duration alone, and `early` excludes this effect.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import numpy as np
import numpy.typing as npt
import torch
import tyro
from torch import Tensor, nn

from diffclone.cli.console import bars, print_json, print_table
from diffclone.data import Demonstrations
from diffclone.deploy.calibration import Rollouts, collect_rollouts, conformal_threshold, make_monitor
from diffclone.deploy.monitor import Monitor
from diffclone.errors import InvalidSettings
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.reports.numbers import percent
from diffclone.settings import to_dict
from diffclone.tasks import TASKS
from diffclone.training.runs import Run

NOISES = {
    "fetch-pick": (("start_noise", "goal_noise"), (1.0, 1.25, 1.5, 1.75, 2.0)),
    "ant-reach": (("start_noise",), (0.0, 0.01, 0.02, 0.03, 0.05)),
}
"""Options of each task that control its noise, and their values."""
NEIGHBOURS = 5
DISTILLATION_UPDATES = 4000
"""Updates of the network that learns the outputs of a random network."""
RESAMPLES = 1000
BATCH = 512
"""Rows whose neighbours are searched at once."""

Numbers = npt.NDArray[np.float64]
ScoreFunction = Callable[[Demonstrations], dict[str, Numbers]]
"""Returns the values of each score, one per step; high values indicate a failure."""


def make_scores(monitor: Monitor, policy: Policy, demos: Demonstrations) -> ScoreFunction:
    """Return a function that computes all scores. Scores that need training use the policy's own demonstrations."""
    normaliser = policy.normaliser

    def states(steps: Demonstrations) -> Tensor:
        return normaliser.normalise_obs(torch.tensor(steps.obs).float())

    def pairs(steps: Demonstrations) -> Tensor:
        return torch.cat([states(steps), normaliser.normalise_act(torch.tensor(steps.act))], -1)

    known, known_pairs = states(demos), pairs(demos)
    centre, inverse = known.double().mean(0), torch.linalg.pinv(torch.cov(known.double().T))
    distilled = distil(known)

    def scores(steps: Demonstrations) -> dict[str, Numbers]:
        guide, s = monitor.score(steps.obs, steps.act), states(steps)
        others = {"disagreement of members": disagreement(policy, steps)} if len(policy) > 1 else {}
        return {
            "guide, both": guide.both,
            "guide, state": guide.state,
            "guide, action": guide.action,
            "nearest states": neighbour_distance(s, known),
            "nearest pairs": neighbour_distance(pairs(steps), known_pairs),
            "Mahalanobis, states": mahalanobis(s.double() - centre, inverse),
            "random network distillation, states": distilled(s),
            **others,
            "steps so far": np.concatenate([np.arange(n, dtype=np.float64) for n in steps.lengths]),
        }

    return scores


def neighbour_distance(rows: Tensor, known: Tensor) -> Numbers:
    """Return the distance to the k-th nearest of the known rows."""
    distances = [torch.cdist(some, known).kthvalue(NEIGHBOURS, -1).values for some in rows.split(BATCH)]
    return torch.cat(distances).double().numpy()


def mahalanobis(x: Tensor, inverse: Tensor) -> Numbers:
    """Return √(xᵀ Σ⁻¹ x) of each row."""
    return torch.einsum("ri,ij,rj->r", x, inverse, x).clamp(min=0).sqrt().numpy()


def distil(known: Tensor) -> Callable[[Tensor], Numbers]:
    """Train a network to predict the outputs of a random network on known states. Its error is the score."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)

        def network() -> nn.Sequential:
            return nn.Sequential(
                nn.Linear(known.shape[1], 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 32)
            )

        target, learner = network().requires_grad_(requires_grad=False), network()
        adam = torch.optim.Adam(learner.parameters(), lr=1e-3)
        for _ in range(DISTILLATION_UPDATES):
            x = known[torch.randint(len(known), (128,))]
            loss = (learner(x) - target(x)).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()

    def score(states: Tensor) -> Numbers:
        with torch.no_grad():
            return (learner(states) - target(states)).square().mean(-1).double().numpy()

    return score


def disagreement(policy: Policy, steps: Demonstrations) -> Numbers:
    """Return the standard deviation of the members' normalised actions."""
    actions = policy.act(torch.tensor(steps.obs).float()[None], 0)
    return policy.normaliser.normalise_act(actions).std(0).mean(-1).double().numpy()


@final
@dataclass(frozen=True, eq=False)
class Detection:
    """The result of one score on some episodes."""

    failed: npt.NDArray[np.bool_]
    peak: Numbers
    """M / q."""
    early: Numbers
    """M / q over the first steps."""
    first: Numbers
    """The first step with an alarm, counted from 1; infinite if there is none."""

    def summary(self) -> dict[str, Any]:
        """Return the values that a Record stores."""
        alarmed, failed = np.isfinite(self.first), self.failed
        detected = self.first[alarmed & failed]
        return {
            "successes": int((~failed).sum()),
            "false_alarms": int((alarmed & ~failed).sum()),
            "failures": int(failed.sum()),
            "detected": len(detected),
            "detection_step": float(np.median(detected)) if len(detected) else None,
            "auroc": auroc(self.peak, failed),
            "auroc_interval": auroc_interval(self.peak, failed),
            "early_auroc": auroc(self.early, failed),
            "early_auroc_interval": auroc_interval(self.early, failed),
        }


def detect(score: Numbers, q: float, rollouts: Rollouts, early: int) -> Detection:
    """Return the maxima and first alarms of each episode."""
    by_episode = np.split(score, rollouts.steps.episode_ends[:-1])
    first = [float(np.argmax(s > q)) + 1 if (s > q).any() else np.inf for s in by_episode]
    peak, first_steps = ([s[:steps].max() / q for s in by_episode] for steps in (None, early))
    return Detection(~rollouts.success, np.array(peak), np.array(first_steps), np.array(first))


def concatenate(parts: list[Detection]) -> Detection:
    """Join several sets of episodes."""
    columns = ([getattr(part, name) for part in parts] for name in ("failed", "peak", "early", "first"))
    return Detection(*(np.concatenate(column) for column in columns))


def auroc(score: Numbers, failed: npt.NDArray[np.bool_]) -> float | None:
    """Return the AUROC, or None if no episode or every episode failed."""
    if failed.all() or not failed.any():
        return None
    gap = score[failed][:, None] - score[~failed][None, :]
    return float((gap > 0).mean() + 0.5 * (gap == 0).mean())


def auroc_interval(score: Numbers, failed: npt.NDArray[np.bool_]) -> list[float] | None:
    """Return the 95 % bootstrap interval over failures and successes."""
    if failed.all() or not failed.any():
        return None
    gap = score[failed][:, None] - score[~failed][None, :]
    wins, rng = (gap > 0) + 0.5 * (gap == 0), np.random.default_rng(0)
    draws = [rng.multinomial(n, np.full(n, 1 / n), RESAMPLES) / n for n in wins.shape]
    means = np.einsum("rf,fs,rs->r", draws[0], wins, draws[1], optimize=True)
    return [float(edge) for edge in np.quantile(means, (0.025, 0.975))]


@dataclass(frozen=True)
class Monitoring:
    """Compare scores that detect failures."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Runs of dbc with a diffusion guide, on fetch-pick or ant-reach."""
    episodes: int = 100
    """Test episodes per member and level, and calibration episodes per member."""
    alpha: float = 0.05
    levels: tuple[float, ...] = ()
    """Levels of noise; by default those of the task's study."""
    json: bool = False
    """Print JSON instead of tables."""
    out: Path | None = None
    """File to which Records are appended."""

    def run(self) -> None:
        """Run the benchmark."""
        torch.set_num_threads(1)
        for folder in self.runs:
            record = self.measure(Run(folder))
            if self.out is not None:
                record.append_to(self.out)
            if self.json:
                print_json({"settings": record.settings, "results": record.results})
                continue
            rows = [[name, *table_cells(found["all"])] for name, found in record.results["detectors"].items()]
            print_table(f"{folder}: {record.settings['task']}", ["score", *table_cells(None)], rows)

    def measure(self, run: Run) -> Record:
        """Evaluate every member of a run at every level."""
        start, policy, task = time.monotonic(), run.policy(), str(run.identity()["task"])
        if task not in NOISES:
            raise InvalidSettings(f"{run.folder} was trained on {task}; this benchmark supports {', '.join(NOISES)}.")
        names, levels = NOISES[task][0], self.levels or NOISES[task][1]
        demos = TASKS[task].demonstrations()
        if demos.fingerprint != policy.data["fingerprint"]:
            raise InvalidSettings(f"{run.folder} was not trained on the bundled demonstrations of {task}.")
        results: dict[str, dict[float, list[Detection]]] = {}
        calibrated: list[int] = []
        with bars() as show:
            for m in range(len(policy)):
                scores = make_scores(make_monitor(policy, m), policy, demos)
                good = collect_rollouts(policy[m], task, episodes=self.episodes).successes
                calibrated.append(good.num_episodes)
                early = int(np.median(good.lengths)) // 2
                begins = good.episode_ends - good.lengths
                maxima = {name: np.maximum.reduceat(score, begins) for name, score in scores(good).items()}
                q = {name: conformal_threshold(peaks, self.alpha) for name, peaks in maxima.items()}
                for k, level in enumerate(levels):
                    noise: Mapping[str, Any] = dict.fromkeys(names, level)
                    rollouts = collect_rollouts(policy[m], task, episodes=self.episodes, starts="evaluation", **noise)
                    for name, score in scores(rollouts.steps).items():
                        detection = detect(score, q[name], rollouts, early)
                        results.setdefault(name, {}).setdefault(level, []).append(detection)
                    show.update(f"{task}: members × levels", m * len(levels) + k + 1, len(policy) * len(levels))
        return Record(
            kind="benchmark",
            settings={
                "benchmark": "monitoring",
                "task": task,
                "alpha": self.alpha,
                "episodes": self.episodes,
                "noise": list(names),
                "levels": list(levels),
                "method": to_dict(policy.method),
            },
            members=[dict(member) for member in policy.members],
            data=policy.data,
            results={
                "calibrated_on": calibrated,
                "detectors": {
                    name: {
                        **{f"{level:g}": concatenate(parts).summary() for level, parts in by_level.items()},
                        "all": concatenate([part for parts in by_level.values() for part in parts]).summary(),
                    }
                    for name, by_level in results.items()
                },
            },
            device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
            seconds=time.monotonic() - start,
        )


def table_cells(found: Mapping[str, Any] | None) -> list[str]:
    """Return the cells of a row, or the headings."""
    if found is None:
        return ["AUROC", "early", "false alarms", "detected", "at step"]
    rates = [percent(found[a] / max(found[b], 1)) for a, b in (("false_alarms", "successes"), ("detected", "failures"))]
    areas = ["–" if found[key] is None else f"{found[key]:.3f}" for key in ("auroc", "early_auroc")]
    return [*areas, *rates, "–" if found["detection_step"] is None else f"{found['detection_step']:g}"]


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Monitoring, prog="python -m benchmarks.monitoring").run()
