"""The one loop, and what it is made of."""

from diffclone.training.loop import Progress, Trained, train
from diffclone.training.members import Member, Stack

__all__ = ["Member", "Progress", "Stack", "Trained", "train"]
