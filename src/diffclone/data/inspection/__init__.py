"""Inspection of demonstrations before training: problems in the data, and a ranking of unusual episodes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.inspection.actions import (
    find_actions_outside_bounds,
    find_constant_actions,
    find_contradictory_actions,
    find_misaligned_actions,
    find_saturated_actions,
)
from diffclone.data.inspection.dimensions import (
    find_blank_images,
    find_constant_observations,
    find_degrees,
    find_different_scales,
    find_duplicated_observations,
    find_hardly_varying_observations,
    find_leaked_actions,
    find_wrapping_angles,
)
from diffclone.data.inspection.episodes import (
    find_duplicate_episodes,
    find_frozen_stretches,
    find_jumps,
    find_tiny_episodes,
    find_too_little_data,
)
from diffclone.data.inspection.findings import (
    SEVERITIES,
    Finding,
    Findings,
    get_action_bounds,
    has_images,
    split_parts,
)
from diffclone.data.inspection.ranking import EpisodeRanking, rank_episodes

__all__ = [
    "CHECKS",
    "SEVERITIES",
    "EpisodeRanking",
    "Finding",
    "Findings",
    "find_problems",
    "get_action_bounds",
    "rank_episodes",
    "split_parts",
    "summarise",
]

CHECKS: Mapping[str, Callable[[Demonstrations], list[Finding]]] = {
    "too_little_data": find_too_little_data,
    "tiny_episodes": find_tiny_episodes,
    "duplicate_episodes": find_duplicate_episodes,
    "frozen_stretches": find_frozen_stretches,
    "jumps": find_jumps,
    "constant_observations": find_constant_observations,
    "hardly_varying_observations": find_hardly_varying_observations,
    "blank_images": find_blank_images,
    "duplicated_observations": find_duplicated_observations,
    "leaked_actions": find_leaked_actions,
    "different_scales": find_different_scales,
    "degrees": find_degrees,
    "wrapping_angles": find_wrapping_angles,
    "constant_actions": find_constant_actions,
    "saturated_actions": find_saturated_actions,
    "actions_outside_bounds": find_actions_outside_bounds,
    "misaligned_actions": find_misaligned_actions,
    "contradictory_actions": find_contradictory_actions,
}
"""All checks by name, in the order in which findings of equal severity are listed. A new check is added here."""


def find_problems(demos: Demonstrations) -> Findings:
    """Run all checks (`CHECKS`).

    Of images with numbers, the numbers have all checks, and the images are checked for blank ones.

    Args:
        demos: the demonstrations to check.

    Returns:
        The findings, the most serious first; an empty list if no check found anything.
    """
    if demos.layout is not None:
        numbers, images = split_parts(demos)
        blank = [replace(finding, check="blank_images") for finding in find_blank_images(images)]
        return sort_findings([*find_problems(numbers), *blank])
    return sort_findings(replace(found, check=name) for name, check in CHECKS.items() for found in check(demos))


def sort_findings(found: Iterable[Finding]) -> Findings:
    """Return findings with the most serious first, otherwise in their order."""
    return Findings(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def summarise(demos: Demonstrations) -> dict[str, Any]:
    """Return what was read, so that a person can compare it with what was recorded."""
    lengths, bounds = demos.lengths, demos.action_bounds
    return {
        "episodes": demos.num_episodes,
        "steps": demos.num_steps,
        "shortest": int(lengths.min()),
        "longest": int(lengths.max()),
        "observation_size": demos.obs_size,
        "images": has_images(demos),
        "action_size": demos.act.shape[1],
        "action_bounds": None if bounds is None else [bound.tolist() for bound in bounds],
        "source": demos.meta.get("source") or demos.meta.get("task"),
        "reader": demos.meta.get("understood"),
        "fingerprint": demos.fingerprint,
    }
