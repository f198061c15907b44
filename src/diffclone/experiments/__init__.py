"""The paper as data: settings with their sources, the numbers it prints, and its experiments. One file each, one line
here.
"""

from diffclone.experiments.augmentation import AUGMENTATION
from diffclone.experiments.coefficient import COEFFICIENT
from diffclone.experiments.dataset_size import DATASET_SIZE
from diffclone.experiments.expert_term import EXPERT_TERM
from diffclone.experiments.generalization import GENERALIZATION
from diffclone.experiments.gradient_field import GRADIENT_FIELD
from diffclone.experiments.guides import GUIDES_TABLE
from diffclone.experiments.inference import INFERENCE
from diffclone.experiments.loss_curves import LOSS_CURVES
from diffclone.experiments.main_table import MAIN_TABLE
from diffclone.experiments.manifold import MANIFOLD
from diffclone.experiments.multimodality import MULTIMODALITY
from diffclone.experiments.noise_injection import NOISE_INJECTION
from diffclone.experiments.paper import paper, printed_expert
from diffclone.experiments.pixels import PIXELS
from diffclone.experiments.presets import PRESETS, Preset, preset
from diffclone.experiments.spec import Experiment
from diffclone.registry import Registry

EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    {
        experiment.name: experiment
        for experiment in (
            MAIN_TABLE,
            MULTIMODALITY,
            GENERALIZATION,
            INFERENCE,
            MANIFOLD,
            NOISE_INJECTION,
            GUIDES_TABLE,
            COEFFICIENT,
            EXPERT_TERM,
            LOSS_CURVES,
            DATASET_SIZE,
            AUGMENTATION,
            PIXELS,
            GRADIENT_FIELD,
        )
    },
    group="diffclone.experiments",
    instance_of=Experiment,
)

__all__ = ["EXPERIMENTS", "PRESETS", "Experiment", "Preset", "paper", "preset", "printed_expert"]
