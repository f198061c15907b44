"""Neural networks whose weights have a leading member axis, so that all members are computed together."""

from diffclone.nn.images import PolicyNet, policy_net
from diffclone.nn.layers import MLP, Denoiser, Linear, Network, ResidualMLP

__all__ = ["MLP", "Denoiser", "Linear", "Network", "PolicyNet", "ResidualMLP", "policy_net"]
