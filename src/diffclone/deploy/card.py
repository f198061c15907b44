"""The model card of a policy: its sizes, data, settings and evaluations, made from its config and Records.

The lines between `---` are the metadata of the Hugging Face Hub, in YAML. Each value is JSON, which is valid YAML.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from diffclone.records import Record
from diffclone.settings import differences

UNKNOWN_LICENSE = "unknown"
"""The Hub's name for a licence that nobody stated."""


def model_card(
    config: Mapping[str, Any],
    evaluations: Sequence[Record] = (),
    *,
    repo: str | None = None,
    license: str = UNKNOWN_LICENSE,
    datasets: Sequence[str] = (),
) -> str:
    """Return the Markdown of the README.md in a policy's folder.

    Args:
        config: the content of config.json.
        evaluations: Records of evaluations. Those of other members, settings of acting or options are left out.
        repo: the name of the policy on the Hub, "organisation/name"; None if it is not there.
        license: the identifier that the Hub uses for the licence of the weights, such as "mit".
        datasets: names of the datasets on the Hub that it was trained on.
    """
    data, meta = config["data"], config["data"].get("meta", {})
    evaluations = [record for record in evaluations if is_own(record, config)]
    source = meta.get("task") or meta.get("source") or "unknown"
    bounds = config.get("action_bounds")
    clipping = "no bounds" if bounds is None else f"clipped to {bounds[0]} … {bounds[1]}"
    members = config["members"]
    usage = ["action = policy[0](observation)"]
    if {"horizon", "history"} & set(config["method"]):  # settings without effect are not written
        usage = ["act = policy[0].session()", "action = act(observation)  # act.reset() begins an episode"]
    metadata = hub_metadata(config, evaluations, repo=repo, license=license, datasets=datasets)
    lines = [
        "---",
        *(f"{key}: {json.dumps(value)}" for key, value in metadata.items()),
        "---",
        f"# {config['method']['type']} policy",
        "",
        "| | |",
        "|---|---|",
        f"| observation | {config['observation_size']} numbers |",
        f"| action | {config['action_size']} numbers, {clipping} |",
        f"| members | {len(members)}: {describe_members(members)} |",
        f"| demonstrations | {source}, {data.get('episodes')} episodes, {data.get('steps')} steps, "
        f"fingerprint `{data.get('fingerprint')}` |",
        f"| versions | {', '.join(f'{name} {version}' for name, version in config['versions'].items())} |",
        "",
        "```python",
        "import diffclone",
        "",
        f'policy = diffclone.Policy.from_pretrained("{repo or "this folder"}")',
        *usage,
        "```",
        "",
        "## Evaluation",
        "",
    ]
    if not evaluations:
        lines.append("None yet: `diffclone evaluate RUN`.")
    else:
        lines += ["| task | starts | members × episodes | success (95 %) | return (95 %) |", "|---|---|---|---|---|"]
        lines += [evaluation_row(record) for record in evaluations]
    settings = json.dumps(config["method"], indent=2, ensure_ascii=False)
    lines += ["", "## Settings", "", "```json", settings, "```", ""]
    return "\n".join(lines)


def hub_metadata(
    config: Mapping[str, Any],
    evaluations: Sequence[Record],
    *,
    repo: str | None,
    license: str,
    datasets: Sequence[str],
) -> dict[str, Any]:
    """Return the metadata that the Hub reads: what it filters by, and results that it shows beside the card."""
    method = config["method"]["type"]
    metadata: dict[str, Any] = {
        "license": license,
        "library_name": "diffclone",
        "pipeline_tag": "robotics",
        "tags": ["imitation-learning", "behavioral-cloning", "robotics", method],
    }
    if datasets:
        metadata["datasets"] = list(datasets)
    if evaluations:
        results = [evaluation_result(record) for record in evaluations]
        metadata["metrics"] = sorted({metric["type"] for result in results for metric in result["metrics"]})
        metadata["model-index"] = [{"name": repo or f"{method} policy", "results": results}]
    return metadata


def is_own(record: Record, config: Mapping[str, Any]) -> bool:
    """Return whether an evaluation is of all members of the policy, acting as it was saved, where it is meant to act.

    That is an environment without options, unless the policy was trained on a task setting, which may have some; the
    card then names them.
    """
    all_members = all(member in record.members for member in config["members"])
    # Only settings of acting can differ, and those of a guide whose names have changed since the Record was made.
    changed = [d for d in differences(record.settings, config["method"]) if not d.startswith("guide.")]
    has_setting = "setting" in config["data"].get("meta", {})
    return all_members and not changed and (has_setting or not record.results.get("options"))


def describe_place(results: Mapping[str, Any]) -> str:
    """Return the task of an evaluation with the options of its environment."""
    options: Mapping[str, Any] = results.get("options") or {}
    return ", ".join([str(results["task"]), *(f"{name} {value}" for name, value in options.items())])


def evaluation_result(record: Record) -> dict[str, Any]:
    """Return one evaluation as an entry of the Hub's model-index."""
    results: Any = record.results
    metrics = [{"type": "mean_reward", "name": "mean return", "value": results["mean_return"]}]
    if results["success_rate"] is not None:
        metrics.append({"type": "success_rate", "name": "success rate", "value": results["success_rate"]})
    return {
        "task": {"type": "robotics", "name": "imitation learning"},
        "dataset": {"type": results["task"], "name": describe_place(results)},
        "metrics": metrics,
    }


def evaluation_row(record: Record) -> str:
    """Return the table row of one evaluation."""
    results: Any = record.results
    worst, best = results["return_interval"]
    success = "–"
    if results["success_rate"] is not None:
        low, high = results["success_interval"]
        success = f"{results['success_rate']:.3f} ({low:.3f} … {high:.3f})"
    return (
        f"| {describe_place(results)} | {results['starts']}, {results['protocol']} "
        f"| {results['members']} × {results['episodes']} | {success} "
        f"| {results['mean_return']:.2f} ({worst:.2f} … {best:.2f}) |"
    )


def describe_members(members: Sequence[Mapping[str, Any]]) -> str:
    """Return the settings of the first six members."""
    shown = [", ".join(f"{name} {value:g}" for name, value in member.items()) for member in members[:6]]
    return "; ".join(shown) + ("; …" if len(members) > 6 else "")
