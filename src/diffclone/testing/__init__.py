"""Contract checks that you can run over your own classes."""

from diffclone.testing.guides import check_guide
from diffclone.testing.methods import check_method
from diffclone.testing.tasks import check_task

__all__ = ["check_guide", "check_method", "check_task"]
