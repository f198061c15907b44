"""Tables that compare methods, guides and improvements, from Records."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.experiments import PRESETS, paper
from diffclone.records import Record
from diffclone.reports.numbers import format_p
from diffclone.settings import to_dict
from diffclone.statistics import permutation_p
from diffclone.tasks import TASKS

RECORDS = Path(__file__).parent / "records"

GUIDE_NAMES = {"diffusion": "diffusion model", "energy": "energy", "vae": "VAE", "gan": "GAN"}


def load_evaluations(file: str, starts: str) -> list[Record]:
    """Return the evaluations of a file on one list of starts."""
    found = Record.read_all(RECORDS / file)
    return [r for r in found if r.kind == "evaluation" and not r.quick and r.results["starts"] == starts]


def describe_method(record: Record) -> str:
    """Return the name of a method with the settings in which rows differ."""
    settings: Any = record.settings
    kind = settings["type"]
    if kind == "bc":
        return "BC"
    if kind == "ibc":
        return f"IBC, {settings['samples']} × {settings['iterations']} without derivatives"
    if kind == "ibc-langevin":
        return "IBC, Langevin"
    if kind == "diffusion-policy":
        calls = settings["steps"] if settings["sampler"] == "ancestral" else settings["calls"]
        extra = f", {settings['extra']} more at the end" if settings["extra"] else ""
        return f"Diffusion Policy, {calls} calls ({settings['sampler']}{extra})"
    imitation = {member.get("imitation", settings["imitation"]) for member in record.members}
    guide = GUIDE_NAMES[settings["guide"]["type"]]
    return f"{guide} alone, no BC" if imitation == {0.0} else f"DBC, {guide}"


def format_printed(record: Record, task: str) -> str:
    """Return the paper's number for the same method."""
    settings: Any = record.settings
    key = {"ibc": "implicit-bc"}.get(settings["type"], settings["type"])
    if settings["type"] == "dbc":
        alone = {member.get("imitation", settings["imitation"]) for member in record.members} == {0.0}
        cell = paper()["guides"][task]["without-bc" if alone else "with-bc"].get(settings["guide"]["type"])
    elif settings["type"] == "diffusion-policy" and settings["sampler"] != "ancestral":
        cell = None
    else:
        cell = paper()["main-table"][task].get(key)
    return "–" if cell is None else f"{cell['mean']} ± {cell['sd']}"


def methods_table() -> str:
    """Return the table of all methods on Maze, with both sets of demonstrations."""
    bundled = TASKS["maze"].demonstrations().fingerprint
    rows: dict[str, dict[bool, Record]] = {}
    for record in load_evaluations("methods.jsonl.gz", "evaluation"):
        rows.setdefault(describe_method(record), {})[record.data["fingerprint"] == bundled] = record
    lines = [
        "| method | updates | the authors' demonstrations, % (95 %) | bundled, % (95 %) | the paper |",
        "|---|---|---|---|---|",
    ]
    for name, found in rows.items():
        any_record = next(iter(found.values()))
        updates = f"{any_record.settings['training']['updates']:,}"
        cells = [format_success(found[ours]) if ours in found else "–" for ours in (False, True)]
        lines.append(f"| {name} | {updates} | {' | '.join(cells)} | {format_printed(any_record, 'maze')} |")
    return "\n".join(lines)


def format_success(record: Record) -> str:
    """Return the success rate, its interval, and seeds × episodes."""
    results: Any = record.results
    low, high = results["success_interval"]
    count = f"{results['members']} × {results['episodes']}"
    return f"{100 * results['success_rate']:.1f} ({100 * low:.1f} … {100 * high:.1f}), {count}"


def list_changes(settings: Any, base: Any, path: str = "") -> Iterator[str]:
    """Yield the fields that differ from the base, as flags."""
    for name, value in settings.items():
        where = f"{path}{name}"
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            yield from list_changes(value, base[name], f"{where}.")
        elif name in base and value != base[name] and where not in ("coefficient", "guide.t_shares"):
            yield f"{where} {value}"


def ablation_table(task: str) -> str:
    """Return the table of changes to the base, for each λ, on validation starts."""
    records = [r for r in load_evaluations("ablation.jsonl.gz", "validation") if r.results["task"] == task]
    base = json.loads(json.dumps(to_dict(PRESETS[f"{task}/dbc/brief"].method)))
    rates: dict[tuple[str, str], list[float]] = {}
    for record in records:
        settings: Any = record.settings
        bc = settings["type"] == "bc"
        change = "BC" if bc else ", ".join(list_changes(settings, base)) or "base"
        change = change.replace("ratio", "ρ") if settings.get("coefficient") == "auto" else change
        for member, rate in zip(record.members, record.results["member_success"], strict=True):
            weight = "–" if bc else str(member.get("coefficient", settings["coefficient"])).removesuffix(".0")
            rates.setdefault((change, weight), []).append(rate)
    cloned = rates["BC", "–"]
    lines = [
        "| change | λ | success, %, mean ± sd over seeds | p against BC | p against base, same λ |",
        "|---|---|---|---|---|",
    ]
    for (change, weight), found in rates.items():
        base_rates = rates.get(("base", weight))
        cells = [
            "–" if change == "BC" else format_p(permutation_p(found, cloned)),
            "–" if base_rates is None or base_rates is found else format_p(permutation_p(found, base_rates)),
        ]
        spread = 100 * float(np.std(found, ddof=1))
        lines.append(
            f"| {change} | {weight} | {100 * float(np.mean(found)):.1f} ± {spread:.1f} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def best_table() -> str:
    """Return the table of the chosen settings and BC, on evaluation starts."""
    bundled = {TASKS[task].demonstrations().fingerprint for task in ("maze", "fetch-pick")}
    records = load_evaluations("best.jsonl", "evaluation")
    cloned = {r.data["fingerprint"]: r.results["member_success"] for r in records if r.settings["type"] == "bc"}
    lines = [
        "| task | demonstrations | method | success, % (95 %), seeds × episodes | p against BC | the paper |",
        "|---|---|---|---|---|---|",
    ]
    for record in records:
        settings: Any = record.settings
        data, task = record.data["fingerprint"], record.results["task"]
        weights = {str(m.get("coefficient", settings.get("coefficient"))).removesuffix(".0") for m in record.members}
        ratio = f", ρ = {settings['ratio']:g}" if weights == {"auto"} else ""
        bc = settings["type"] == "bc"
        name = "BC" if bc else f"DBC, κ = {settings['away']:g}, λ = {', '.join(sorted(weights))}{ratio}"
        p = "–" if bc else format_p(permutation_p(record.results["member_success"], cloned[data]))
        source = "bundled" if data in bundled else "the authors'"
        printed = "–" if data in bundled else format_printed(record, task)  # levels depend on the demonstrations
        lines.append(f"| {task} | {source} | {name} | {format_success(record)} | {p} | {printed} |")
    return "\n".join(lines)


def pendulum_table() -> str:
    """Return the returns of BC and DBC on Gymnasium's pendulum."""
    lines = ["| method | return (95 %) | seeds × episodes |", "|---|---|---|"]
    for record in Record.read_all(RECORDS / "pendulum.jsonl"):
        r: Any = record.results
        if record.kind == "expert":
            lines.append(f"| the expert | {r['mean_return']:.0f} | {r['episodes']} demonstrations |")
            continue
        low, high = r["return_interval"]
        values = f"{r['mean_return']:.0f} ({low:.0f} … {high:.0f})"
        lines.append(f"| {r['label']} | {values} | {r['members']} × {r['episodes']} |")
    return "\n".join(lines).replace("-", "−").replace("−−−", "---")
