"""The fourteen experiments of the paper, as data."""

from diffclone.experiments.catalogue.measurements import (
    GRADIENT_FIELD,
    INFERENCE,
    LOSS_CURVES,
    MANIFOLD,
    MULTIMODALITY,
    NOISE_INJECTION,
)
from diffclone.experiments.catalogue.scores import (
    AUGMENTATION,
    COEFFICIENT,
    DATASET_SIZE,
    EXPERT_TERM,
    GENERALIZATION,
    GUIDES,
    MAIN_TABLE,
    PIXELS,
)
from diffclone.experiments.specification import Experiment
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
            GUIDES,
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
