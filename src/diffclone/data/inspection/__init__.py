"""Look at demonstrations before learning from them: what ruins imitation, and which episodes are unlike the others."""

from collections.abc import Callable
from typing import Any

from diffclone.data import Demonstrations
from diffclone.data.inspection.actions import (
    actions_and_bounds,
    constant_actions,
    contradictory_actions,
    misaligned,
    saturated_actions,
)
from diffclone.data.inspection.dimensions import (
    blank_pictures,
    constant_observations,
    degrees,
    different_scales,
    duplicated_observations,
    leaked_actions,
    wrapping_angles,
)
from diffclone.data.inspection.episodes import (
    duplicate_episodes,
    frozen_stretches,
    jumps,
    tiny_episodes,
    too_little_data,
)
from diffclone.data.inspection.findings import SEVERITIES, Finding, bounds_of, pictures
from diffclone.data.inspection.ranking import Unlikeness, rank_episodes

__all__ = ["CHECKS", "SEVERITIES", "Finding", "Unlikeness", "bounds_of", "find_faults", "rank_episodes", "understood"]

CHECKS: tuple[Callable[[Demonstrations], list[Finding]], ...] = (
    too_little_data,
    tiny_episodes,
    duplicate_episodes,
    frozen_stretches,
    jumps,
    constant_observations,
    blank_pictures,
    duplicated_observations,
    leaked_actions,
    different_scales,
    degrees,
    wrapping_angles,
    constant_actions,
    saturated_actions,
    actions_and_bounds,
    misaligned,
    contradictory_actions,
)
"""In the order in which findings of one severity are told. To add a check, add it here."""


def find_faults(demos: Demonstrations) -> list[Finding]:
    """What all checks say, the gravest first."""
    found = [finding for check in CHECKS for finding in check(demos)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def understood(demos: Demonstrations) -> dict[str, Any]:
    """What was read, for a person to compare with what they recorded."""
    lengths, bounds = demos.lengths, demos.action_bounds
    return {
        "episodes": demos.num_episodes,
        "steps": demos.num_steps,
        "shortest": int(lengths.min()),
        "longest": int(lengths.max()),
        "observation_size": demos.obs.shape[1],
        "pictures": pictures(demos),
        "action_size": demos.act.shape[1],
        "action_bounds": None if bounds is None else [bound.tolist() for bound in bounds],
        "source": demos.meta.get("source") or demos.meta.get("task"),
        "reader": demos.meta.get("understood"),
        "fingerprint": demos.fingerprint,
    }
