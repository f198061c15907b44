"""Cheetah's expert, trained by reinforcement. Its actions are samples, as those of the authors' demonstrations are."""

from pathlib import Path

from diffclone.tasks.network_expert import NetworkExpert


def make_expert(noise: float = 1.0, weights: Path | None = None) -> NetworkExpert:
    """Bundled weights, or others; `noise` scales what its hand adds."""
    return NetworkExpert("cheetah", horizon=1000, env_options={}, noise=noise, successful=False, weights=weights)
