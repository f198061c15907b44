"""diffclone's monitor as a processor step: how far an observation and an action are from the demonstrations.

The step scores a pair in raw units (docs/monitor.md). A transition with an observation and an action has both. A policy
sees them apart: the preprocessor has the observation, the postprocessor the action. `attach_monitor` puts one step into
both pipelines; it remembers the observation and scores it with the action that follows.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from lerobot.configs.types import PipelineFeatureType, PolicyFeature
from lerobot.lerobot_types import EnvTransition, TransitionKey
from lerobot.processor import (
    NormalizerProcessorStep,
    PolicyProcessorPipeline,
    ProcessorStep,
    ProcessorStepRegistry,
    UnnormalizerProcessorStep,
)
from lerobot.utils.constants import OBS_STATE
from torch import Tensor

from diffclone.errors import InvalidData, InvalidSettings
from diffclone.policy import Policy
from lerobot_policy_diffclone.processor_diffclone import ClipActionProcessorStep

KEY = "diffclone_monitor"
"""Key of the scores in the info of a transition."""


@ProcessorStepRegistry.register(KEY)
@dataclass
class MonitorProcessorStep(ProcessorStep):
    """Adds scores and alarms to the info of a transition with an action."""

    folder: str
    """The folder, or the name on the Hub, of a diffclone policy with a calibrated monitor."""
    keys: list[str] = field(default_factory=lambda: [OBS_STATE])
    """The features of an observation, in the order of the policy."""

    def __post_init__(self) -> None:
        self.policy = Policy.from_pretrained(self.folder)
        if self.policy.calibrated_monitor is None:
            raise InvalidSettings(f"the policy in {self.folder} has no calibrated monitor. See docs/lerobot.md.")
        if self.policy.chunks.has_memory:
            raise InvalidSettings(
                f"the policy in {self.folder} has windows or chunks; the monitor scores single steps."
            )
        self.observation: Tensor | None = None
        self.last: dict[str, Any] | None = None
        """Scores and alarms of the last pair, as in the info."""

    def __call__(self, transition: EnvTransition) -> EnvTransition:
        """Remember the observation if there is one; score it if there is an action."""
        observation, action = transition.get(TransitionKey.OBSERVATION), transition.get(TransitionKey.ACTION)
        if observation:
            self.observation = torch.cat([torch.as_tensor(observation[key]) for key in self.keys], -1).detach().cpu()
        if action is None:
            return transition
        if self.observation is None:
            raise InvalidData(
                "the monitor has an action but no observation. Put one step into both pipelines: attach_monitor(…)."
            )
        scores = self.policy.monitor(self.observation.numpy(), torch.as_tensor(action).detach().cpu().numpy())
        self.last = scores.to_dict()
        info = {**(transition.get(TransitionKey.INFO) or {}), KEY: self.last}
        return {**transition, TransitionKey.INFO: info}

    def reset(self) -> None:
        """Forget the observation: a new episode begins."""
        self.observation = self.last = None

    def get_config(self) -> dict[str, Any]:
        """Return the folder and the keys."""
        return {"folder": self.folder, "keys": self.keys}

    def transform_features(
        self, features: dict[PipelineFeatureType, dict[str, PolicyFeature]]
    ) -> dict[PipelineFeatureType, dict[str, PolicyFeature]]:
        """Observations and actions stay as they are."""
        return features


def attach_monitor(
    preprocessor: PolicyProcessorPipeline[Any, Any],
    postprocessor: PolicyProcessorPipeline[Any, Any],
    step: MonitorProcessorStep,
) -> None:
    """Put the step where both pipelines have raw units: before normalisation, and after it is undone and clipped."""
    first = [isinstance(other, NormalizerProcessorStep) for other in preprocessor.steps].index(True)
    raw = (UnnormalizerProcessorStep, ClipActionProcessorStep)
    last = max(k for k, other in enumerate(postprocessor.steps) if isinstance(other, raw)) + 1
    preprocessor.steps = [*preprocessor.steps[:first], step, *preprocessor.steps[first:]]
    postprocessor.steps = [*postprocessor.steps[:last], step, *postprocessor.steps[last:]]
