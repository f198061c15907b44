"""Contract checks that you can run over your own classes."""

from diffclone.testing.tasks import check_task

__all__ = ["check_task"]
