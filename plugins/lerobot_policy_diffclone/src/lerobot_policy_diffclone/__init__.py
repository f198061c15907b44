"""Diffusion Model-Augmented Behavioral Cloning as a policy of LeRobot: `--policy.type=diffclone`.

LeRobot imports this package by its name, and the imports below register the policy, its learning rates, its processor
steps and an environment.
"""

from lerobot_policy_diffclone.configuration_diffclone import DiffcloneConfig, StagesSchedulerConfig
from lerobot_policy_diffclone.environment import GymnasiumStateEnv
from lerobot_policy_diffclone.modeling_diffclone import DiffclonePolicy
from lerobot_policy_diffclone.monitor import MonitorProcessorStep, attach_monitor
from lerobot_policy_diffclone.processor_diffclone import ClipActionProcessorStep, make_diffclone_pre_post_processors

__all__ = [
    "ClipActionProcessorStep",
    "DiffcloneConfig",
    "DiffclonePolicy",
    "GymnasiumStateEnv",
    "MonitorProcessorStep",
    "StagesSchedulerConfig",
    "attach_monitor",
    "make_diffclone_pre_post_processors",
]
