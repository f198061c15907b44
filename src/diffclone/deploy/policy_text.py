"""A policy as one line for a terminal and as a table for a notebook."""

from typing import TYPE_CHECKING

from diffclone.data.notebook import html_table, list_numbers
from diffclone.settings import describe_values, to_dict

if TYPE_CHECKING:
    from diffclone.policy import Policy

MOST_MEMBERS = 8
"""Members that a table lists."""


def describe_policy(policy: "Policy") -> str:
    """Return the method, the number of members and the sizes."""
    members = f"{len(policy)} member{'s' * (len(policy) != 1)}"
    sizes = f"obs {policy.dims.obs}, act {policy.dims.act}"
    return f"Policy({', '.join([type(policy.method).__name__, members, sizes, *describe_memory(policy)])})"


def describe_memory(policy: "Policy") -> list[str]:
    """Return what a policy with a memory sees and plays, else nothing."""
    chunks = policy.chunks
    return [f"history {chunks.history}", f"plays {chunks.execute} of {chunks.horizon}"] if chunks.has_memory else []


def policy_table(policy: "Policy") -> str:
    """Return the table of a policy: method, members, sizes, bounds, and what it was trained on."""
    listed = [describe_values(member) for member in policy.members[:MOST_MEMBERS]]
    more = len(policy) - len(listed)
    method, guide = type(policy.method).__name__, policy.method.needs().get("guide")
    numbers = sum(parameter[0].numel() for parameter in policy.net.parameters())
    rows = [
        ("method", method if guide is None else f"{method}, guide {to_dict(guide)['type']}"),
        (f"{len(policy)} member{'s' * (len(policy) != 1)}", "; ".join(listed) + f"; … {more} more" * (more > 0)),
        ("observation", f"{policy.dims.obs:,} numbers"),
        ("action", f"{policy.dims.act:,} numbers"),
        ("weights", f"{numbers:,} numbers per member, on {policy.device}"),
    ]
    if policy.bounds is not None:
        low, high = (list_numbers(bound.tolist()) for bound in policy.bounds)
        rows.append(("actions clipped to", f"({low}) … ({high})"))
    if memory := describe_memory(policy):
        rows.append(("memory", ", ".join(memory)))
    if policy.diverged:
        rows.append(("diverged members", ", ".join(map(str, policy.diverged))))
    counts = [f"{policy.data[name]} {name}" for name in ("episodes", "steps") if name in policy.data]
    if counts:
        rows.append(("trained on", ", ".join([*counts, str(policy.data.get("fingerprint", ""))])))
    monitor = policy.calibrated_monitor
    rows.append(("monitor", "none" if monitor is None else ", ".join(fitted.name for fitted in monitor.scores)))
    return html_table("Policy", rows)
