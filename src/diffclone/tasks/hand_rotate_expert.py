"""HandRotate's expert, trained by reinforcement. Only successful episodes are shown, up to the success."""

from pathlib import Path

from diffclone.tasks.network_expert import NetworkExpert


def make_expert(noise: float = 1.0, weights: Path | None = None) -> NetworkExpert:
    """Bundled weights, or others; `noise` scales what its hand adds."""
    return NetworkExpert("hand-rotate", horizon=50, env_options={}, noise=noise, successful=True, weights=weights)
