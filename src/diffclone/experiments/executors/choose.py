"""`--on` and `--needs`: which engine runs jobs, and what a job occupies."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from diffclone.errors import InvalidSettings
from diffclone.experiments.executors.interface import Executor, Needs

LOCAL, RAY = "local", "ray"
GPU_SHARE = 0.25
"""Default share of a GPU: four jobs on each, as a stack of a few seeds does not fill one."""
UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def check_on(on: str) -> None:
    """Raise an error for a value of `--on` that is no engine."""
    if on not in (LOCAL, RAY) and not on.startswith("ray://"):
        raise InvalidSettings(f"--on takes local, ray or ray://HOST:10001; it was given {on!r}.")


def check_workers(workers: int) -> None:
    """Raise an error for a value of `--workers` that runs nothing."""
    if workers < 1:
        raise InvalidSettings(f"at least one worker is needed; {workers} were requested.")


@contextmanager
def open_executor(on: str, workers: int) -> Generator[Executor | None, None, None]:
    """Yield an engine; None if jobs run one after another in this process."""
    check_on(on)
    check_workers(workers)
    if on == LOCAL and workers == 1:
        yield None
        return
    if on == LOCAL:
        from diffclone.experiments.executors.local import LocalExecutor

        executor: Executor = LocalExecutor(workers)
    else:
        from diffclone.experiments.executors.cluster import RayExecutor

        executor = RayExecutor(None if on == RAY else on)
    with executor:
        yield executor


def parse_needs(text: str, device: str) -> Needs:
    """Return the needs of "cpus=2,gpus=0.5,memory=4GB"; on a GPU, a quarter of one unless it says otherwise."""
    needs = Needs(gpus=GPU_SHARE if device.startswith("cuda") else 0.0)
    for entry in (part for part in text.split(",") if part):
        name, _, value = entry.partition("=")
        unit = UNITS.get(value[-2:].upper(), 0.0) if name == "memory" else 1.0
        try:
            number = float(value[:-2] if name == "memory" else value) * unit
        except ValueError:
            number = -1.0
        if name not in ("cpus", "gpus", "memory") or not 0 <= number < 1e18 or (name == "memory" and not unit):
            raise InvalidSettings(f"--needs takes e.g. cpus=2,gpus=0.5,memory=4GB; it was given {entry!r}.")
        if name == "gpus" and number > 1 and number != int(number):
            raise InvalidSettings(f"--needs gpus above 1 must be a whole number; it is {number:g}.")
        needs = replace(needs, **{name: int(number) if name == "memory" else number})
    return needs
