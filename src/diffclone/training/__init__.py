"""Training: the loop, its members, checkpoints and runs."""

from diffclone.training.loop import Progress, Trained, train
from diffclone.training.members import Member, Stack
from diffclone.training.step import Precision

__all__ = ["Member", "Precision", "Progress", "Stack", "Trained", "train"]
