"""AntReach's expert, trained by reinforcement. Demonstrations begin without noise and last fifty steps."""

from pathlib import Path

from diffclone.tasks.network_expert import NetworkExpert


def make_expert(noise: float = 0.5, weights: Path | None = None) -> NetworkExpert:
    """Bundled weights, or others; `noise` scales what its hand adds."""
    return NetworkExpert(
        "ant-reach", horizon=50, env_options={"start_noise": 0.0}, noise=noise, successful=True, weights=weights
    )
