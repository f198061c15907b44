"""Layers whose weights lead with a member axis: one program trains every member."""

from diffclone.nn.images import PolicyNet, policy_net
from diffclone.nn.layers import MLP, Denoiser, Linear, Network, ResidualMLP

__all__ = ["MLP", "Denoiser", "Linear", "Network", "PolicyNet", "ResidualMLP", "policy_net"]
