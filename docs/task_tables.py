"""Make tables about the tasks from Records: experts, settings, policies, multimodality, stepping and latency."""

import json
from pathlib import Path
from typing import Any

from diffclone.experiments import PRESETS, paper
from diffclone.experiments.task_settings import TASK_SETTINGS, WITH_HEADROOM, headroom
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import BUNDLED, TASKS
from diffclone.tasks.experts import EXPERT_RECORDS

RECORDS = Path(__file__).parent / "records"


def score(task: str, results: Any) -> str:
    """Return a score by the task's metric, with its interval."""
    if TASKS[task].metric == "success":
        low, high = results["success_interval"]
        return f"{100 * results['success_rate']:.1f} ({100 * low:.1f} … {100 * high:.1f})"
    low, high = results["return_interval"]
    return f"{results['mean_return']:.0f} ({low:.0f} … {high:.0f})"


def experts_table() -> str:
    """Return the bundled experts and demonstrations."""
    lines = [
        "| task | metric | bundled demonstrations | expert, evaluation starts (95 %) | episodes | the paper's expert |",
        "|---|---|---|---|---|---|",
    ]
    records = {record.results["task"]: record.results for record in expert_records()}
    for task in BUNDLED:
        demos, printed = task.demonstrations(), paper()["experts"].get(task.name)
        lines.append(
            f"| {task.name} | {task.metric} | {demos.num_episodes} episodes, {demos.num_steps:,} steps, "
            f"`{demos.fingerprint}` | {score(task.name, records[task.name])} | {records[task.name]['episodes']} "
            f"| {'not printed' if printed is None else printed} |"
        )
    return "\n".join(lines)


def settings_table() -> str:
    """Return the settings: demonstrations, the scores of expert and tuned BC, and the headroom between them."""
    lines = [
        "| setting | demonstrations | options | expert (95 %) | BC, tuned, fresh seeds (95 %) | headroom, percent |",
        "|---|---|---|---|---|---|",
    ]
    own = Record.read_all(RECORDS / "settings.jsonl")
    experts = {str(r.results.get("setting") or r.results["task"]): r.results for r in (*expert_records(), *own)}
    for setting in WITH_HEADROOM:
        demos, metric = setting.load_demonstrations(), TASKS[setting.task].metric
        same = not setting.options and not setting.expert  # the expert and the environment of the task
        expert = experts[setting.task if same else setting.name]
        bc, shown, share = tuned_bc(setting.name), "not run", "–"
        if bc is not None:
            key = "success_rate" if metric == "success" else "mean_return"
            shown, share = score(setting.task, bc), f"{100 * headroom(expert[key], bc[key]):.0f}".replace("-", "−")
        options = " ".join(f"`{name}={value}`" for name, value in setting.options.items()) or "–"
        episodes = "1 episode" if demos.num_episodes == 1 else f"{demos.num_episodes} episodes"
        lines.append(
            f"| {setting.name} | {episodes}, {demos.num_steps:,} steps, `{demos.fingerprint}` "
            f"| {options} | {score(setting.task, expert)} | {shown} | {share} |"
        )
    return "\n".join(lines)


def settings_list() -> str:
    """Return what each setting is, in words."""
    return "\n".join(f"- `{setting.name}`: {setting.about}" for setting in WITH_HEADROOM)


def expert_records() -> list[Record]:
    """Return the Records of the bundled experts."""
    return Record.read_all(EXPERT_RECORDS)


def tuned_bc(setting: str) -> Any:
    """Return the results of BC with the settings and the length chosen on validation starts, if the study has them."""
    for path in sorted(RECORDS.glob("study*.jsonl*")):
        for record in Record.read_all(path):
            results: Any = record.results
            found = (results.get("study"), results.get("setting"), results.get("method")) == ("fresh", setting, "BC")
            if found and results["snapshot"] == results.get("chosen") and not record.quick:
                return results
    return None


def agree(ours: Any, recorded: Any) -> bool:
    """Return whether settings are those of a Record, which may lack newer fields."""
    if isinstance(ours, dict) and isinstance(recorded, dict):
        return all(agree(ours[name], recorded[name]) for name in ours if name in recorded)
    return ours == recorded


def preset_of(record: Record, task: str) -> str:
    """Return the name of a method: its preset, if it is one, and the coefficients of its members."""
    settings: Any = record.settings
    varied = sorted({member["coefficient"] for member in record.members if "coefficient" in member})
    name = settings["type"].upper()
    for key, preset in PRESETS.items():
        if key.split("/")[:2] == [task, settings["type"]]:
            theirs = json.loads(json.dumps(to_dict(preset.method)))
            theirs = {
                field: value for field, value in theirs.items() if field in settings
            }  # an older Record may lack fields
            changed = {field for field in theirs if not agree(theirs[field], settings[field])}
            if changed <= {"normalisation"}:
                without = f", normalisation {settings['normalisation']}" if changed else ""
                weight = f", λ = {', '.join(f'{c:g}' for c in varied)}" if varied else ""
                return f"{name} `{key.split('/')[2]}`{without}{weight}"
    training = settings["training"]
    return f"{name}, {training['updates']:,} updates at lr {training['lr']:g}"


def policies_table(*, starts: str, task: str | None = None, plain: bool = False) -> str:
    """Return evaluations with the scores of expert and paper; `plain`: only those without options."""
    lines = [
        "| task | demonstrations | method | score (95 %) | seeds × episodes | expert | the paper |",
        "|---|---|---|---|---|---|---|",
    ]
    experts = {record.results["task"]: record.results for record in expert_records()}
    bundled = {known.demonstrations().fingerprint for known in BUNDLED}
    made = [json.loads(line) for line in (RECORDS / "collected.jsonl").read_text(encoding="utf-8").splitlines()]
    collected = {entry["fingerprint"]: f"`{entry['command'].partition('--options ')[2]}`" for entry in made}
    for record in Record.read_all(RECORDS / "tasks.jsonl.gz"):
        results: Any = record.results
        if record.kind != "evaluation" or results["starts"] != starts or (task and results["task"] != task):
            continue
        name, options = results["task"], results.get("options", {})
        if plain and options:
            continue
        fingerprint, meta = record.data["fingerprint"], record.data["meta"]
        source = "bundled" if fingerprint in bundled else collected.get(fingerprint) or f"the authors' {meta['source']}"
        printed = None if options else paper()["main-table"].get(name, {}).get(record.settings["type"])
        shown = "–" if printed is None else f"{printed['mean']} ± {printed['sd']}"
        expert = score(name, experts[name]).partition(" ")[0] if fingerprint in bundled and not options else "–"
        where = "".join(f", {key} {value:g}" for key, value in options.items())
        lines.append(
            f"| {name}{where} | {source} | {preset_of(record, name)} | {score(name, results)} "
            f"| {results['members']} × {results['episodes']} | {expert} | {shown} |"
        )
    return "\n".join(lines)


def stepping_table() -> str:
    """Return the speed of our batch and of Gymnasium's vector environments."""
    lines = [
        "| task | batch of 64, steps/s | better of Sync and Async, ours | ratio | stock | ratio |",
        "|---|---|---|---|---|---|",
    ]
    results: Any = Record.read_all(RECORDS / "stepping.jsonl")[-1].results
    for task, rates in results["steps_per_second"].items():
        cells = [task, f"{rates['batch']:,.0f}"]
        for kind in ("ours", "stock"):
            best = max((rate for name, rate in rates.items() if name.endswith(kind)), default=None)
            cells += ["–", "–"] if best is None else [f"{best:,.0f}", f"{rates['batch'] / best:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def latency_table() -> str:
    """Return the time per action of each method."""

    def three_digits(number: float) -> str:
        return f"{float(f'{number:.3g}'):,g}"

    lines = ["| method | ms per action | times BC |", "|---|---|---|"]
    results: Any = Record.read_all(RECORDS / "latency.jsonl")[-1].results
    for name, taken in results["milliseconds"].items():
        lines.append(f"| {name} | {three_digits(taken)} | {three_digits(results['ratio_to_bc'][name])} |")
    return "\n".join(lines)


def multimodality_table() -> str:
    """Return the majority ratios."""
    lines = ["| demonstrations | ratio, mean of 5 seeds | least … most | the paper |", "|---|---|---|---|"]
    for record in Record.read_all(RECORDS / "multimodality.jsonl"):
        results: Any = record.results
        task = TASK_SETTINGS[results["task"]].task if results["task"] in TASK_SETTINGS else results["task"]
        printed = paper()["multimodality"].get(task.removesuffix(".pt"))
        spread = f"{results['least']:.3f} … {results['most']:.3f}"
        name = f"the authors' {results['task']}" if results["task"].endswith(".pt") else results["task"]
        lines.append(f"| {name} | {results['ratio']:.3f} | {spread} | {'–' if printed is None else printed} |")
    return "\n".join(lines)
