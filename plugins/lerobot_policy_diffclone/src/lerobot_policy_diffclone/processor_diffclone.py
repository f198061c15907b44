"""Normalisation around the policy: LeRobot's default steps, and clipping to the action bounds."""

from dataclasses import dataclass
from typing import Any

import torch
from lerobot.configs.types import PipelineFeatureType, PolicyFeature
from lerobot.lerobot_types import PolicyAction
from lerobot.processor import ActionProcessorStep, PolicyProcessorPipeline, ProcessorStepRegistry
from lerobot.processor.factory import make_default_policy_processor_steps, make_policy_processor_pipelines

from lerobot_policy_diffclone.configuration_diffclone import DiffcloneConfig


@ProcessorStepRegistry.register("diffclone_clip_action")
@dataclass
class ClipActionProcessorStep(ActionProcessorStep):
    """Clips actions in raw units."""

    low: list[float]
    high: list[float]

    def action(self, action: PolicyAction) -> PolicyAction:
        """Return the action within the bounds."""
        return action.clamp(action.new_tensor(self.low), action.new_tensor(self.high))

    def get_config(self) -> dict[str, Any]:
        """Return the bounds."""
        return {"low": self.low, "high": self.high}

    def transform_features(
        self, features: dict[PipelineFeatureType, dict[str, PolicyFeature]]
    ) -> dict[PipelineFeatureType, dict[str, PolicyFeature]]:
        """Shapes stay."""
        return features


def make_diffclone_pre_post_processors(
    config: DiffcloneConfig, dataset_stats: dict[str, dict[str, torch.Tensor]] | None = None
) -> tuple[
    PolicyProcessorPipeline[dict[str, Any], dict[str, Any]], PolicyProcessorPipeline[PolicyAction, PolicyAction]
]:
    """Return the pipelines before and after the policy. LeRobot finds this function by its name."""
    steps = make_default_policy_processor_steps(config, dataset_stats, normalizer_device=config.device)
    clip = [] if config.action_bounds is None else [ClipActionProcessorStep(*config.action_bounds)]
    return make_policy_processor_pipelines(
        input_steps=[steps.rename_observations, steps.add_batch_dim, steps.to_device, steps.normalize],
        output_steps=[steps.unnormalize, *clip, steps.to_cpu],
    )
