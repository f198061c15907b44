"""Scores of a monitor: how far a pair is from the demonstrations. One file per score, registered below."""

from typing import Any

from diffclone.deploy.monitors.base import PairScore
from diffclone.deploy.monitors.disagreement import DisagreementScore
from diffclone.deploy.monitors.guide import GuideScore
from diffclone.deploy.monitors.logpzo import LogpZOScore
from diffclone.deploy.monitors.nearest import NearestScore
from diffclone.deploy.monitors.rnd import RNDScore
from diffclone.registry import Registry

SCORES: Registry[type[PairScore[Any]]] = Registry(
    "score",
    {
        "nearest": NearestScore,
        "guide": GuideScore,
        "rnd": RNDScore,
        "logpzo": LogpZOScore,
        "disagreement": DisagreementScore,
    },
    group="diffclone.scores",
    subclass_of=PairScore,
)

__all__ = [
    "SCORES",
    "DisagreementScore",
    "GuideScore",
    "LogpZOScore",
    "NearestScore",
    "PairScore",
    "RNDScore",
]
