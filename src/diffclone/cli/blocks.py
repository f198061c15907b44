"""What `train` does with demonstrations that are read in blocks, because they do not fit into `--memory`."""

from diffclone.cli.console import print_message
from diffclone.data import AnyDemonstrations, Demonstrations, Streamed
from diffclone.data.formats.memory import format_bytes
from diffclone.data.streamed import available
from diffclone.errors import InvalidSettings
from diffclone.training.episodes import RunEpisodes

HELD_OUT = 32
"""Held-out episodes take at most this part of the available memory: 1 / 32."""


def select_blocks(demos: Streamed, share: float, source: str) -> tuple[Streamed, Demonstrations | None, RunEpisodes]:
    """Return the demonstrations to train on, some of those held out, in memory, and a list of both for the run."""
    print_message(f"Reading {format_bytes(demos.num_steps * demos.row_bytes)} once, for statistics and fingerprints.")
    training, rest = demos.split(share) if share else (demos, None)
    held_out = None if rest is None else rest.sample(available(demos.memory) // HELD_OUT)
    of_rest = () if rest is None else rest.episode_fingerprints
    return training, held_out, RunEpisodes(training.episode_fingerprints, of_rest, source)


def refuse_blocks(demos: AnyDemonstrations, data: str) -> None:
    """Raise an error if demonstrations are not in memory, where a search needs them."""
    if isinstance(demos, Streamed):
        raise InvalidSettings(
            f"{data} does not fit into --memory {format_bytes(demos.memory)}, and a search for method and settings "
            "needs it in memory. Choose the method, e.g. --method bc, or --plain."
        )
