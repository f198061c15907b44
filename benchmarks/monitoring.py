"""Which score tells at run time that an episode will fail.

python benchmarks/monitoring.py RUN …                  runs of dbc on fetch-pick or ant-reach, a table each
python benchmarks/monitoring.py RUN --out FILE         also a Record, appended to FILE

M_i   = max over the steps of episode i of a score
q     = of the successes among episodes from validation starts, in the task as it is: conformal.py, α
AUROC = P(M of a failure > M of a success) + ½ P(they are equal)      of M / q, all members together
early = the same, M over half as many steps as the median success of the calibration has

Episodes to be judged come from evaluation starts, with the task's noise at several levels: those the demonstrations
have, and more. All scores are calibrated on the same episodes and judge the same episodes. A failure may last longer
than a success, which raises its maximum whatever the score is: the row "steps so far" looks at nothing else, and says
how much of an AUROC that may be; `early` leaves it out.
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

from diffclone.cli.console import bars, percent, print_json, print_table
from diffclone.data import Demonstrations
from diffclone.deploy.calibration import Rollouts, collect_rollouts, conformal_threshold, monitor_of
from diffclone.deploy.monitor import Monitor
from diffclone.errors import InvalidSettings
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS
from diffclone.training.runs import Run

NOISES = {
    "fetch-pick": (("start_noise", "goal_noise"), (1.0, 1.25, 1.5, 1.75, 2.0)),
    "ant-reach": (("start_noise",), (0.0, 0.01, 0.02, 0.03, 0.05)),
}
"""What shifts each task, and by how much."""
NEIGHBOURS = 5
DISTILLING = 4000
"""Updates of the network that learns what a random one says."""
RESAMPLES = 1000
CHUNK = 512
"""Rows whose neighbours are looked for at once."""

Numbers = npt.NDArray[np.float64]
Scoring = Callable[[Demonstrations], dict[str, Numbers]]
"""Of each contestant a number a step, high where something is wrong."""


def scoring(monitor: Monitor, every: Policy, demos: Demonstrations) -> Scoring:
    """All contestants; those that learn do so from the policy's own demonstrations."""
    normaliser = every.normaliser

    def states(steps: Demonstrations) -> Tensor:
        return normaliser.normalise_obs(torch.tensor(steps.obs).float())

    def pairs(steps: Demonstrations) -> Tensor:
        return torch.cat([states(steps), normaliser.normalise_act(torch.tensor(steps.act))], -1)

    known, known_pairs = states(demos), pairs(demos)
    centre, inverse = known.double().mean(0), torch.linalg.pinv(torch.cov(known.double().T))
    distilled = distil(known)

    def scores(steps: Demonstrations) -> dict[str, Numbers]:
        guide, seen = monitor.score(steps.obs, steps.act), states(steps)
        others = {"disagreement of members": disagreement(every, steps)} if len(every) > 1 else {}
        return {
            "guide, both": guide.both,
            "guide, state": guide.state,
            "guide, action": guide.action,
            "nearest states": neighbour_distance(seen, known),
            "nearest pairs": neighbour_distance(pairs(steps), known_pairs),
            "Mahalanobis, states": mahalanobis(seen.double() - centre, inverse),
            "random network distillation, states": distilled(seen),
            **others,
            "steps so far": np.concatenate([np.arange(n, dtype=np.float64) for n in steps.lengths]),
        }

    return scores


def neighbour_distance(rows: Tensor, known: Tensor) -> Numbers:
    """To the k-th nearest of the known ones."""
    found = [torch.cdist(some, known).kthvalue(NEIGHBOURS, -1).values for some in rows.split(CHUNK)]
    return torch.cat(found).double().numpy()


def mahalanobis(away: Tensor, inverse: Tensor) -> Numbers:
    """√(xᵀ Σ⁻¹ x)."""
    return torch.einsum("ri,ij,rj->r", away, inverse, away).clamp(min=0).sqrt().numpy()


def distil(known: Tensor) -> Callable[[Tensor], Numbers]:
    """A network learns what a random one says of known states; where it errs, states are new."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)

        def network() -> nn.Sequential:
            return nn.Sequential(
                nn.Linear(known.shape[1], 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 32)
            )

        target, learner = network().requires_grad_(requires_grad=False), network()
        adam = torch.optim.Adam(learner.parameters(), lr=1e-3)
        for _ in range(DISTILLING):
            x = known[torch.randint(len(known), (128,))]
            loss = (learner(x) - target(x)).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()

    def score(states: Tensor) -> Numbers:
        with torch.no_grad():
            return (learner(states) - target(states)).square().mean(-1).double().numpy()

    return score


def disagreement(every: Policy, steps: Demonstrations) -> Numbers:
    """Standard deviation over the members' answers, in standard deviations of the demonstrations' actions."""
    answers = every.act(torch.tensor(steps.obs).float()[None], 0)
    return every.normaliser.normalise_act(answers).std(0).mean(-1).double().numpy()


@final
@dataclass(frozen=True, eq=False)
class Judged:
    """What one score says of some episodes."""

    failed: npt.NDArray[np.bool_]
    peak: Numbers
    """M / q."""
    early: Numbers
    """The same of the first steps."""
    first: Numbers
    """The first step with an alarm, counted from 1; infinite where there is none."""

    def summary(self) -> dict[str, Any]:
        """As a Record keeps it."""
        alarmed, failed = np.isfinite(self.first), self.failed
        caught = self.first[alarmed & failed]
        return {
            "successes": int((~failed).sum()),
            "false_alarms": int((alarmed & ~failed).sum()),
            "failures": int(failed.sum()),
            "detected": len(caught),
            "detection_step": float(np.median(caught)) if len(caught) else None,
            "auroc": auroc(self.peak, failed),
            "auroc_interval": auroc_interval(self.peak, failed),
            "early_auroc": auroc(self.early, failed),
            "early_auroc_interval": auroc_interval(self.early, failed),
        }


def judge(score: Numbers, q: float, played: Rollouts, early: int) -> Judged:
    """Episodes by their scores."""
    by_episode = np.split(score, played.steps.episode_ends[:-1])
    first = [float(np.argmax(s > q)) + 1 if (s > q).any() else np.inf for s in by_episode]
    peak, soon = ([s[:steps].max() / q for s in by_episode] for steps in (None, early))
    return Judged(~played.success, np.array(peak), np.array(soon), np.array(first))


def joined(parts: list[Judged]) -> Judged:
    """All of them as one."""
    columns = ([getattr(part, name) for part in parts] for name in ("failed", "peak", "early", "first"))
    return Judged(*(np.concatenate(column) for column in columns))


def auroc(score: Numbers, failed: npt.NDArray[np.bool_]) -> float | None:
    """AUROC; none where nothing failed, or everything."""
    if failed.all() or not failed.any():
        return None
    gap = score[failed][:, None] - score[~failed][None, :]
    return float((gap > 0).mean() + 0.5 * (gap == 0).mean())


def auroc_interval(score: Numbers, failed: npt.NDArray[np.bool_]) -> list[float] | None:
    """95 %, resampling failures and successes."""
    if failed.all() or not failed.any():
        return None
    gap = score[failed][:, None] - score[~failed][None, :]
    better, rng = (gap > 0) + 0.5 * (gap == 0), np.random.default_rng(0)
    draws = [rng.multinomial(n, np.full(n, 1 / n), RESAMPLES) / n for n in better.shape]
    means = np.einsum("rf,fs,rs->r", draws[0], better, draws[1], optimize=True)
    return [float(edge) for edge in np.quantile(means, (0.025, 0.975))]


@dataclass(frozen=True)
class Monitoring:
    """Compare scores that should tell failures."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Of dbc with a diffusion guide, on fetch-pick or ant-reach."""
    episodes: int = 100
    """A member and a level, and as many to calibrate on."""
    alpha: float = 0.05
    levels: tuple[float, ...] = ()
    """Of noise; by default what the task's study has."""
    json: bool = False
    """Print the Records' results instead of tables."""
    out: Path | None = None
    """A file of Records to append to."""

    def run(self) -> None:
        """Do it."""
        torch.set_num_threads(1)
        for folder in self.runs:
            record = self.measure(Run(folder))
            if self.out is not None:
                record.append_to(self.out)
            if self.json:
                print_json({"settings": record.settings, "results": record.results})
                continue
            rows = [[name, *cells(found["all"])] for name, found in record.results["detectors"].items()]
            print_table(f"{folder}: {record.settings['task']}", ["score", *cells(None)], rows)

    def measure(self, run: Run) -> Record:
        """Every member of a run at every level."""
        begun, policy, task = time.monotonic(), run.policy(), str(run.identity()["task"])
        if task not in NOISES:
            raise InvalidSettings(f"{run.folder} is of {task}; noise is known of {', '.join(NOISES)}.")
        names, levels = NOISES[task][0], self.levels or NOISES[task][1]
        demos = TASKS[task].demonstrations()
        if demos.fingerprint != policy.data["fingerprint"]:
            raise InvalidSettings(f"{run.folder} was not trained on the bundled demonstrations of {task}.")
        found: dict[str, dict[float, list[Judged]]] = {}
        calibrated: list[int] = []
        with bars() as show:
            for m in range(len(policy)):
                scores = scoring(monitor_of(run, m), policy, demos)
                good = collect_rollouts(policy[m], task, episodes=self.episodes).successes
                calibrated.append(good.num_episodes)
                early = int(np.median(good.lengths)) // 2
                begins = good.episode_ends - good.lengths
                maxima = {name: np.maximum.reduceat(score, begins) for name, score in scores(good).items()}
                q = {name: conformal_threshold(peaks, self.alpha) for name, peaks in maxima.items()}
                for k, level in enumerate(levels):
                    noise: Mapping[str, Any] = dict.fromkeys(names, level)
                    played = collect_rollouts(policy[m], task, episodes=self.episodes, starts="evaluation", **noise)
                    for name, score in scores(played.steps).items():
                        result = judge(score, q[name], played, early)
                        found.setdefault(name, {}).setdefault(level, []).append(result)
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
                        **{f"{level:g}": joined(parts).summary() for level, parts in by_level.items()},
                        "all": joined([part for parts in by_level.values() for part in parts]).summary(),
                    }
                    for name, by_level in found.items()
                },
            },
            device=f"cpu, {os.cpu_count()} cores, {platform.machine()}",
            seconds=time.monotonic() - begun,
        )


def cells(found: Mapping[str, Any] | None) -> list[str]:
    """A row of the table, or its head."""
    if found is None:
        return ["AUROC", "early", "false alarms", "detected", "at step"]
    rates = [percent(found[a] / max(found[b], 1)) for a, b in (("false_alarms", "successes"), ("detected", "failures"))]
    areas = ["–" if found[key] is None else f"{found[key]:.3f}" for key in ("auroc", "early_auroc")]
    return [*areas, *rates, "–" if found["detection_step"] is None else f"{found['detection_step']:g}"]


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Monitoring, prog="python benchmarks/monitoring.py").run()
