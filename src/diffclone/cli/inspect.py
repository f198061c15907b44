"""The command `inspect`: look at demonstrations before learning from them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import tyro
from rich.markup import escape

from diffclone.cli.arguments import find_demonstrations
from diffclone.cli.console import print_json, print_message, print_table
from diffclone.data import Demonstrations
from diffclone.data.inspection import (
    SEVERITIES,
    EpisodeRanking,
    Finding,
    find_problems,
    get_action_bounds,
    rank_episodes,
    summarise,
)
from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.files import refuse_existing, write_atomically

SHOWN_DIMENSIONS, SHOWN_EPISODES = 24, 5
"""In the terminal; the page and --json have all dimensions, and --json all episodes."""
HISTOGRAM_ROWS = 50_000
JUDGED = 64
"""Steps of an episode that the guide judges."""
COSTS = 8
"""Judgements of each of these steps, whose mean counts."""

Costs = npt.NDArray[np.float64]
Drawn = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Inspect:
    """Say what demonstrations hold, what in them ruins imitation, and which episodes are unusual."""

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A task's name, for its bundled demonstrations; or demonstrations in any format that `train` reads."""
    page: Path | None = None
    """Write a page with plots, too (.html). An existing file is not overwritten."""
    run_folder: Annotated[Path | None, tyro.conf.arg(name="run", metavar="RUN")] = None
    """A run of dbc: its guide's cost then ranks the episodes."""
    json: bool = False
    """Print everything as JSON instead."""

    def run(self) -> None:
        """Do it."""
        if self.page is not None:
            check_page(self.page)
        _, demos = find_demonstrations(self.data, None)
        findings, ranking = find_problems(demos), rank_episodes(demos)
        costs = None if self.run_folder is None else guide_costs(self.run_folder, demos)
        if self.json:
            print_json(everything(demos, findings, ranking, costs))
        else:
            tell(self.data, demos, findings, ranking, costs)
        if self.page is not None:
            write_page(self.page, self.data, demos, findings, ranking, costs)
            print_message(f"wrote {self.page}")


def check_page(path: Path) -> None:
    """That the page can be written is known before anything is read."""
    if path.suffix != ".html":
        raise InvalidSettings(f"the page is written as .html; {path} ends in {path.suffix or 'nothing'}.")
    refuse_existing(path)
    if find_spec("matplotlib") is None:
        raise MissingPackage("--page needs the package matplotlib. Try: pip install 'diffclone[report]'.")


def guide_costs(folder: Path, demos: Demonstrations) -> Costs:
    """What the guide of a run says of each episode: the mean cost of some of its steps, with fixed draws."""
    import torch

    from diffclone.model import Dims, Guide
    from diffclone.rng import Rng
    from diffclone.training.runs import Run

    run = Run(folder)
    policy = run.policy()[0]
    needs = policy.method.needs()
    guide = needs.get("guide")
    if not isinstance(guide, Guide) or set(needs) != {"guide"}:
        raise InvalidSettings(
            f"{folder} holds {type(policy.method).__name__} with {', '.join(needs) or 'nothing'} beside it; "
            "episodes are ranked by a guide alone. Give a run of dbc on numbers, or leave --run out."
        )
    if demos.act.shape[1] != policy.dims.act:
        raise InvalidSettings(f"actions have {demos.act.shape[1]} numbers; those of {folder} have {policy.dims.act}.")
    dims = Dims(policy.dims.obs, policy.dims.act)
    weights = run.part("guide", guide, dims, member=0)
    costs: list[float] = []
    with torch.no_grad():
        for obs, act in demos.episodes():
            steps = np.linspace(0, len(obs) - 1, min(JUDGED, len(obs))).round().astype(int)
            seen = policy.normaliser.normalise_obs(torch.tensor(obs[steps]))[None]
            done = policy.normaliser.normalise_act(torch.tensor(act[steps]))[None]
            rng = Rng([0])  # anew for each episode: all are judged by the same draws
            judged = [guide.cost(weights, seen, done, guide.draw(len(steps), dims, rng[str(k)])) for k in range(COSTS)]
            costs.append(float(torch.stack(judged).mean()))
    return np.array(costs)


def everything(
    demos: Demonstrations, findings: Sequence[Finding], ranking: EpisodeRanking, costs: Costs | None
) -> dict[str, Any]:
    """As JSON holds it."""
    order = order_of(ranking, costs)
    columns = {"score": ranking.score, "summary": ranking.summary, "distance": ranking.distance}
    columns |= {} if costs is None else {"cost": costs}
    return {
        "understood": summarise(demos),
        "ranges": {
            name: {"low": v.min(0).tolist(), "high": v.max(0).tolist(), "mean": v.mean(0, dtype=np.float64).tolist()}
            for name, v in (("obs", demos.obs), ("act", demos.act))
        },
        "findings": [asdict(finding) for finding in findings],
        "episodes": [
            {"episode": int(e), "steps": int(demos.lengths[e]), **{name: float(v[e]) for name, v in columns.items()}}
            for e in order
        ],
    }


def tell(
    name: str, demos: Demonstrations, findings: Sequence[Finding], ranking: EpisodeRanking, costs: Costs | None
) -> None:
    """The tables."""
    # What a file says of itself may look like the table's own marks.
    told = [[key, escape(value)] for key, value in {"data": name, **about(demos)}.items()]
    print_table("What was understood", ["", ""], told)
    rows = ranges(demos)
    print_table("Ranges", ["dimension", "lowest", "mean", "highest", "sd", "bounds"], shortened(rows))
    if findings:
        print_table("Findings", ["", "what", "where", "what to do"], finding_rows(findings))
    else:
        print_message("No check found anything.")
    columns, rows = ranking_table(demos, ranking, costs)
    print_table("Most unusual episodes", columns, rows[:SHOWN_EPISODES])
    counts = {severity: sum(f.severity == severity for f in findings) for severity in SEVERITIES}
    print_message(", ".join(f"{count} {severity}{'s' * (count != 1)}" for severity, count in counts.items()))


def about(demos: Demonstrations) -> dict[str, str]:
    """What was understood, in words."""
    told = summarise(demos)
    words = {
        "episodes": f"{told['episodes']}, of {told['shortest']} … {told['longest']} steps",
        "steps": told["steps"],
        "observations": f"{told['observation_size']} {'pixels' if told['images'] else 'numbers'}",
        "actions": f"{told['action_size']} numbers, bounds {'not ' if told['action_bounds'] is None else ''}known",
        "source": told["source"],
        "as the reader found it": told["reader"],
        "fingerprint": told["fingerprint"],
    }
    return {key: in_words(value) for key, value in words.items() if value is not None}


def in_words(value: Any) -> str:
    """Text as it is; else as JSON, cut where it is long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 2000 else f"{text[:2000]} …"


def ranges(demos: Demonstrations) -> list[list[str]]:
    """A row a dimension; pictures share one."""
    rows: list[list[str]] = []
    pixels = demos.obs.dtype == np.uint8
    bounds = get_action_bounds(demos)
    for name, values in (("obs", demos.obs), ("act", demos.act)):
        if name == "obs" and pixels:
            rows.append([name, str(values.min()), f"{values.mean():.4g}", str(values.max()), f"{values.std():.3g}", ""])
            continue
        mean, std = values.mean(0, dtype=np.float64), values.std(0, dtype=np.float64)
        for k, (low, high) in enumerate(zip(values.min(0), values.max(0), strict=True)):
            allowed = f"{bounds[0][k]:.4g} … {bounds[1][k]:.4g}" if name == "act" and demos.action_bounds else ""
            rows.append([f"{name} {k}", f"{low:.4g}", f"{mean[k]:.4g}", f"{high:.4g}", f"{std[k]:.3g}", allowed])
    return rows


def shortened(rows: list[list[str]]) -> list[list[str]]:
    """The first and the last of many."""
    if len(rows) <= SHOWN_DIMENSIONS:
        return rows
    half = SHOWN_DIMENSIONS // 2
    gap = [f"… ({len(rows) - 2 * half})", "", "", "", "", ""]
    return [*rows[:half], gap, *rows[-half:]]


def finding_rows(findings: Sequence[Finding]) -> list[list[str]]:
    """As tables have them."""
    return [[f.severity, f.what, f.where, f.advice] for f in findings]


def order_of(ranking: EpisodeRanking, costs: Costs | None) -> npt.NDArray[np.int64]:
    """Episodes, the most unusual first: by the guide where there is one."""
    return ranking.order if costs is None else np.argsort(-costs, kind="stable")


def ranking_table(
    demos: Demonstrations, ranking: EpisodeRanking, costs: Costs | None
) -> tuple[list[str], list[list[str]]]:
    """Columns, and a row an episode, the most unusual first."""
    columns = ["episode", "steps", "unusualness", "by its summary", "by its states"] + ["guide's cost"] * (
        costs is not None
    )
    rows: list[list[str]] = []
    for e in order_of(ranking, costs):
        numbers = [f"{ranking.score[e]:.1f}", f"{ranking.summary[e]:.2f}", f"{ranking.distance[e]:.3f}"]
        rows.append([str(e), str(demos.lengths[e]), *numbers] + ([] if costs is None else [f"{costs[e]:.4g}"]))
    return columns, rows


def write_page(
    path: Path,
    name: str,
    demos: Demonstrations,
    findings: Sequence[Finding],
    ranking: EpisodeRanking,
    costs: Costs | None,
) -> None:
    """Everything with plots."""
    from diffclone.reports.inspection import InspectionPage, inspection_page

    columns, rows = ranking_table(demos, ranking, costs)
    chosen = np.sort(np.random.default_rng(0).permutation(demos.num_steps)[:HISTOGRAM_ROWS])
    pixels = demos.obs.dtype == np.uint8
    # The pixels of some pictures together: one by one they say nothing.
    seen = (demos.obs[chosen[:200]].reshape(-1, 1) if pixels else demos.obs[chosen]).astype(np.float32)
    shown = InspectionPage(
        title=f"diffclone: the demonstrations {name}",
        about=about(demos),
        findings=finding_rows(findings),
        ranges=ranges(demos),
        ranking=rows[:20],
        ranking_columns=columns,
        samples={"obs": seen, "act": demos.act[chosen]},
        lengths=demos.lengths,
        scores=ranking.score if costs is None else costs,
        examples=examples(demos, order_of(ranking, costs)[:2]),
        source=json.dumps(dict(demos.meta), indent=1, default=str),
    )
    write_atomically(path, inspection_page(shown).encode())


def examples(demos: Demonstrations, episodes: npt.NDArray[np.int64]) -> dict[str, tuple[Drawn, Drawn]]:
    """Observations that can be drawn in one panel, and actions, by captions."""
    ends, lengths = demos.episode_ends, demos.lengths
    drawn: dict[str, tuple[Drawn, Drawn]] = {}
    for place, e in enumerate(episodes, 1):
        steps = slice(ends[e] - lengths[e], ends[e])
        obs = demos.obs[steps]
        if demos.obs.dtype == np.uint8:
            unit, seen = "the mean grey", obs.mean(1, keepdims=True)
        else:
            std = demos.obs.std(0, dtype=np.float64)
            unit = "in standard deviations of all demonstrations"
            seen = (obs - demos.obs.mean(0, dtype=np.float64)) / np.where(std > 0, std, 1)
        caption = f"Episode {e}, number {place} of the most unusual: observations ({unit}) and actions."
        drawn[caption] = seen.astype(np.float32), demos.act[steps]
    return drawn
