"""The fourteen experiments of the paper, and one on what does not come out, as data."""

from diffclone.experiments.catalogue import known_errors, measurements, scores
from diffclone.experiments.specification import Experiment
from diffclone.registry import Registry

EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    {
        experiment.name: experiment
        for experiment in (
            scores.MAIN_TABLE,
            measurements.MULTIMODALITY,
            scores.GENERALIZATION,
            measurements.INFERENCE,
            measurements.MANIFOLD,
            measurements.NOISE_INJECTION,
            scores.GUIDES,
            scores.COEFFICIENT,
            scores.EXPERT_TERM,
            measurements.LOSS_CURVES,
            scores.DATASET_SIZE,
            scores.AUGMENTATION,
            scores.PIXELS,
            measurements.GRADIENT_FIELD,
            known_errors.KNOWN_ERRORS,
        )
    },
    group="diffclone.experiments",
    instance_of=Experiment,
)
"""In the order of the paper. Other packages add experiments with `register` or an entry point of this group."""
