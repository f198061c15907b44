"""Divide the jobs of experiments into shards, for machines that do not know of each other.

The division depends on the experiments and options alone, not on the Records, so that a shard that is run again has the
same jobs. Groups with the same guide stay together; the longest ones are dealt out first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from diffclone.errors import InvalidSettings
from diffclone.experiments.plan import Job, group_jobs, plan
from diffclone.experiments.specification import Experiment, RunOptions

Value = TypeVar("Value")


@final
@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, from 1 on."""

    number: int = 1
    count: int = 1

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"shard-{self.number}-of-{self.count}"

    def take(self, values: Sequence[Value]) -> Sequence[Value]:
        """Return this shard's values."""
        return values[self.number - 1 :: self.count]

    def select(self, jobs: Sequence[Job], experiments: Sequence[Experiment], options: RunOptions) -> list[Job]:
        """Return the jobs that are this shard's; `experiments` are those that they come from."""
        groups = self.take(group_jobs(plan(experiments, options, ())))
        own = {job.name for group in groups for job in group}
        return [job for job in jobs if job.name in own]


def parse_shard(text: str) -> Shard:
    """Return the shard of "K/N"; everything if the text is empty."""
    number, _, count = text.partition("/")
    if not text:
        return Shard()
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise InvalidSettings(f"--shard takes K/N with K from 1 to N, e.g. 2/8; it was given {text!r}.")
    return Shard(int(number), int(count))
