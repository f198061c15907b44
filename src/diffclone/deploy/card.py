"""The model card of a policy: its sizes, data, settings and evaluations, made from its config and Records."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from diffclone.records import Record


def model_card(config: Mapping[str, Any], evaluations: Sequence[Record] = ()) -> str:
    """Return the Markdown of the README.md in a policy's folder."""
    data, meta = config["data"], config["data"].get("meta", {})
    source = meta.get("task") or meta.get("source") or "unknown"
    bounds = config.get("action_bounds")
    clipping = "no bounds" if bounds is None else f"clipped to {bounds[0]} … {bounds[1]}"
    members = config["members"]
    lines = [
        "---",
        "library_name: diffclone",
        "tags: [imitation-learning, behavioral-cloning, robotics]",
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
        'policy = diffclone.Policy.from_pretrained("this folder")',
        "action = policy[0](observation)",
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


def evaluation_row(record: Record) -> str:
    """Return the table row of one evaluation."""
    results: Any = record.results
    worst, best = results["return_interval"]
    success = "–"
    if results["success_rate"] is not None:
        low, high = results["success_interval"]
        success = f"{results['success_rate']:.3f} ({low:.3f} … {high:.3f})"
    return (
        f"| {results['task']} | {results['starts']}, {results['protocol']} "
        f"| {results['members']} × {results['episodes']} | {success} "
        f"| {results['mean_return']:.2f} ({worst:.2f} … {best:.2f}) |"
    )


def describe_members(members: Sequence[Mapping[str, Any]]) -> str:
    """Return the settings of the first six members."""
    shown = [", ".join(f"{name} {value:g}" for name, value in member.items()) for member in members[:6]]
    return "; ".join(shown) + ("; …" if len(members) > 6 else "")
