"""Compare rules that choose a configuration and a training length without an environment.

python -m scripts.selection_regret STUDY/records.jsonl …                  print the regret of every rule
python -m scripts.selection_regret STUDY/records.jsonl … --out FILE       also write one Record per setting for the docs

The Records are evaluations of the tuning study, snapshots with `selection` metrics of their own seeds, or of
`scripts.search_study`, snapshots with the `metrics` that `train` saw. Both have outcomes on validation starts.

    score(c)  = mean over seeds and validation starts of candidate c: a configuration at one snapshot
    oracle    = the highest score
    regret    = (oracle − score(choice)) / score of the expert, in percent

A rule sees the metrics of few seeds, as `diffclone train` does, and its regret is a mean over such groups of seeds.
The oracle is the maximum of many noisy scores, so that even a perfect rule has some regret. `--split` compares with an
oracle that chooses on half of the starts and is scored, like the rule, on the others; such a regret can be negative.
"""

import argparse
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training.choice import Candidate, choose, list_candidates
from diffclone.training.selection import NAMES

BASELINE = "BC"
EXTERNAL_EXPERTS = Path(__file__).parents[1] / "docs/records/external.jsonl.gz"
STUDIES = ("tuning", "search")
"""Studies whose Records have candidates with metrics."""
SPLITS = 50
"""Random halves of the starts for `--split`."""
Rule = Callable[[Sequence[Candidate]], int]


@final
@dataclass(frozen=True, eq=False)
class Setting:
    """The candidates of one setting, with their true scores."""

    name: str
    expert: float
    records: Sequence[Record]

    def seeds(self) -> list[int]:
        """Return the seeds that every Record has."""
        return sorted(set.intersection(*({int(m["seed"]) for m in r.members} for r in self.records)))

    def candidates(self, seeds: Sequence[int] | None = None) -> list[Candidate]:
        """Return the candidates, with metrics over some seeds, or with those that `train` saw."""
        found: list[Candidate] = []
        for r in self.records:
            own: Any = r.results
            if "metrics" in own:
                found.append(Candidate.from_dict({**own, "updates": own["snapshot"]}))
            else:
                found += list_candidates(own["method"], own["snapshot"], r.members, own["selection"], seeds)
        return found

    def outcomes(self) -> list[npt.NDArray[np.float64]]:
        """Return (seeds, starts) of each candidate, as fractions of the expert's score."""
        found: list[npt.NDArray[np.float64]] = []
        for record in self.records:
            table = outcome_table(record) / self.expert
            groups: dict[tuple[Any, ...], list[int]] = {}
            for m, member in enumerate(record.members):
                key = tuple((name, float(value)) for name, value in member.items() if name != "seed")
                groups.setdefault(key, []).append(m)
            found += [table[rows] for rows in groups.values()]
        return found


def outcome_table(record: Record) -> npt.NDArray[np.float64]:
    """Return success or return of every episode, (members, starts)."""
    outcomes = record.results["outcomes"]
    if TASKS[record.results["task"]].metric == "return":
        return np.array(outcomes["returns"], dtype=np.float64)
    return np.array([[float(digit) for digit in member] for member in outcomes["success"]])


def expert_score(task: str) -> float:
    """Return the success rate or the mean return of a task's expert."""
    files = (Path(str(resources.files("diffclone.assets") / "experts.jsonl")), EXTERNAL_EXPERTS)
    records = (r for path in files for r in Record.read_all(path) if r.kind == "expert")
    results = next(r.results for r in records if r.results["task"] == task)
    return float(results["mean_return" if TASKS[task].metric == "return" else "success_rate"])


def read_settings(records: Iterable[Record], methods: Sequence[str] | None = None) -> list[Setting]:
    """Group the Records that have selection metrics by study and setting."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        results = record.results
        wanted = results.get("study") in STUDIES and (results.get("selection") or results.get("metrics"))
        if wanted and (methods is None or results["method"] in methods):
            groups.setdefault((results["study"], results["setting"]), []).append(record)
    return [Setting(name, expert_score(found[0].results["task"]), found) for (_, name), found in groups.items()]


def lowest(*metrics: str) -> Rule:
    """Return the rule of `diffclone.training.choice` with these metrics."""
    return lambda candidates: choose(candidates, metrics)


def last(candidates: Sequence[Candidate]) -> int:
    """Return the longest training; of several configurations the one with the lowest held-out squared error."""
    longest = max(c.updates for c in candidates)
    kept = [k for k, c in enumerate(candidates) if c.updates == longest]
    return kept[choose([candidates[k] for k in kept], ("error_squared",))]


def last_of(method: str) -> Rule:
    """Return the rule that takes the longest training of a method; that of all methods if there is none of it."""

    def rule(candidates: Sequence[Candidate]) -> int:
        kept = [k for k, c in enumerate(candidates) if c.method == method]
        return kept[last([candidates[k] for k in kept])] if kept else last(candidates)

    return rule


def regrets(setting: Setting, rules: Mapping[str, Rule], seeds: int, *, split: bool) -> dict[str, float]:
    """Return the regret of each rule in percent, a mean over groups of seeds that the rule sees."""
    outcomes, known = setting.outcomes(), setting.seeds()
    score = np.array([table.mean() for table in outcomes])
    halves = half_scores(outcomes) if split else [(score, score)]
    judged = [(float(b[a.argmax()]), b) for a, b in halves]  # the oracle's score, and scores to look the choice up in
    found: dict[str, list[float]] = {name: [] for name in rules}
    for k in range(len(known)):
        candidates = setting.candidates([known[(k + j) % len(known)] for j in range(min(seeds, len(known)))])
        for name, rule in rules.items():
            choice = rule(candidates)
            found[name] += [100 * float(oracle - values[choice]) for oracle, values in judged]
    found["random"] = [100 * float(oracle - values.mean()) for oracle, values in judged]
    methods = np.array([candidate.method for candidate in setting.candidates()])
    for method in dict.fromkeys(methods.tolist()):
        own = np.flatnonzero(methods == method)
        found[f"tuned {method}"] = [100 * float(b[a.argmax()] - b[own][a[own].argmax()]) for a, b in halves]
    return {name: float(np.mean(values)) for name, values in found.items()}


def half_scores(
    outcomes: Sequence[npt.NDArray[np.float64]],
) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Return the scores of all candidates on two halves of the starts, for several random halves."""
    rng, found = np.random.default_rng(0), list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]()
    for _ in range(SPLITS):
        order = rng.permutation(outcomes[0].shape[1])
        first, second = order[: len(order) // 2], order[len(order) // 2 :]
        a, b = (np.array([table[:, half].mean() for table in outcomes]) for half in (first, second))
        found += [(a, b), (b, a)]
    return found


def refit(setting: Setting, records: Iterable[Record]) -> dict[str, list[float]]:
    """Return the success of untuned BC by updates, trained on part of the demonstrations and on all of them.

    The first is from tuning (validation starts), the second from fresh seeds (evaluation starts).
    """
    wanted = {"training.lr": 1e-3, "state_noise": 0.0, "training.weight_decay": 0.0}
    part: dict[int, float] = {}
    for record in setting.records:
        rows = [m for m, member in enumerate(record.members) if wanted.items() <= member.items()]
        if record.results["method"] == BASELINE and rows:
            part[record.results["snapshot"]] = 100 * float(outcome_table(record)[rows].mean() / setting.expert)
    whole = {
        int(r.results["snapshot"]): 100 * float(outcome_table(r).mean() / setting.expert)
        for r in records
        if (r.results.get("setting"), r.results.get("method")) == (setting.name, f"{BASELINE}, untuned")
    }
    updates = sorted(part.keys() & whole.keys())
    return {"updates": [*updates], "part": [part[u] for u in updates], "all": [whole[u] for u in updates]}


def make_record(setting: Setting, rules: Mapping[str, Rule], seeds: int, records: Iterable[Record]) -> Record:
    """Return a Record with the regret of every rule on one setting, in both ways."""
    scores, first = [float(table.mean()) for table in setting.outcomes()], setting.records[0]
    results = {
        "setting": setting.name,
        "study": first.results["study"],
        "task": first.results["task"],
        "starts": first.results["starts"],
        "methods": sorted({r.results["method"] for r in setting.records}),
        "candidates": len(scores),
        "best": 100 * max(scores),
        "seeds": len(setting.seeds()),
        "episodes": first.results["episodes"],
        "seeds_seen": seeds,
        "refit": refit(setting, records),
        "regret": regrets(setting, rules, seeds, split=False),
        "regret_split": regrets(setting, rules, seeds, split=True),
    }
    return Record("selection", {}, [], first.data, results, first.device, sum(r.seconds for r in setting.records))


def main() -> None:
    """Print one row per rule: regret on each setting, mean and worst."""
    parser = argparse.ArgumentParser(prog="selection_regret", description="Compare rules that choose a policy.")
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--settings", nargs="*", help="only these settings")
    parser.add_argument("--methods", nargs="*", help="only these methods")
    parser.add_argument("--seeds", type=int, default=2, help="seeds that a rule sees")
    parser.add_argument("--pairs", action="store_true", help="also all pairs of metrics")
    parser.add_argument("--split", action="store_true", help="compare with an oracle that sees half of the starts")
    parser.add_argument("--rows", type=int, default=30, help="rules to print")
    parser.add_argument("--out", type=Path, help="file to append Records to")
    given = parser.parse_args()
    records = [record for path in given.records for record in Record.read_all(path)]
    settings = [s for s in read_settings(records, given.methods) if not given.settings or s.name in given.settings]
    names = [name for name in NAMES if not name.startswith("model")]
    rules: dict[str, Rule] = {"the rule": choose, "last": last, **{name: lowest(name) for name in names}}
    rules |= {f"last {method}": last_of(method) for method in ("bc", "flow-matching")}
    if given.pairs:
        rules |= {f"{a} + {b}": lowest(a, b) for a, b in itertools.combinations(names, 2)}
    if given.out is not None:
        for setting in settings:
            make_record(setting, rules, given.seeds, records).append_to(given.out)
    table = {
        f"{s.records[0].results['study']} {s.name}": regrets(s, rules, given.seeds, split=given.split) for s in settings
    }
    # The two studies have different methods.
    means = {
        name: float(np.mean([found[name] for found in table.values()]))
        for name in next(iter(table.values()))
        if all(name in found for found in table.values())
    }
    rows = sorted(means, key=means.__getitem__)
    fixed = ("the rule", "last", "error_squared", "error_absolute", "random", "tuned BC")
    print("rule".ljust(36), *(name.rjust(14) for name in table), "mean".rjust(7), "worst".rjust(7))
    for name in [*rows[: given.rows], *(name for name in fixed if name in rows[given.rows :])]:
        values = [found[name] for found in table.values()]
        print(name.ljust(36), *(f"{v:14.1f}" for v in values), f"{np.mean(values):7.1f} {max(values):7.1f}")


if __name__ == "__main__":
    main()
