"""A model card: what a policy is, what it learned from and what it was seen to do. Filled from Records, not by hand."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from diffclone.records import Record


def card(config: Mapping[str, Any], evaluations: Sequence[Record] = ()) -> str:
    """Markdown for the README.md of a policy's folder."""
    data, meta = config["data"], config["data"].get("meta", {})
    source = meta.get("task") or meta.get("source") or "unknown"
    bounds = config.get("action_bounds")
    within = "no bounds" if bounds is None else f"cut to {bounds[0]} … {bounds[1]}"
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
        f"| action | {config['action_size']} numbers, {within} |",
        f"| members | {len(members)}: {shortened(members)} |",
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
        lines += [row(record) for record in evaluations]
    settings = json.dumps(config["method"], indent=2, ensure_ascii=False)
    lines += ["", "## Settings", "", "```json", settings, "```", ""]
    return "\n".join(lines)


def row(record: Record) -> str:
    """One evaluation."""
    results: Any = record.results
    least, most = results["return_interval"]
    success = "–"
    if results["success_rate"] is not None:
        low, high = results["success_interval"]
        success = f"{results['success_rate']:.3f} ({low:.3f} … {high:.3f})"
    return (
        f"| {results['task']} | {results['starts']}, {results['protocol']} "
        f"| {results['members']} × {results['episodes']} | {success} "
        f"| {results['mean_return']:.2f} ({least:.2f} … {most:.2f}) |"
    )


def shortened(members: Sequence[Mapping[str, Any]]) -> str:
    """The first few members in words."""
    shown = [", ".join(f"{name} {value:g}" for name, value in member.items()) for member in members[:6]]
    return "; ".join(shown) + ("; …" if len(members) > 6 else "")
