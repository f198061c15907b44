"""Damage each file that diffclone writes, and demonstrations of each format, and read them again.

    python tests/faults/mutants.py --count 10000

prints JSON for each file: how many damaged versions were read, how many of them gave a valid result, were refused with
one line, ended in another exception ("traceback"), or took longer than the time limit ("hang"), and by how many MiB the
process grew at most for one of them. Version n of a file is always the same.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from diffclone import Demonstrations, DiffusionGuide, Policy, Training, fit
from diffclone.deploy import runtime
from diffclone.deploy.calibration import calibrate
from diffclone.deploy.export import export
from diffclone.errors import DiffcloneError
from diffclone.files import read_tensors
from diffclone.fit import FitOptions
from diffclone.records import Record
from diffclone.training import Progress
from diffclone.training.runs import Run, train_run
from diffclone.training.search import SearchOptions, search_in_folder
from diffclone.training.search_plan import Grid
from faults.crash_points import METHODS, demonstrations
from faults.damage import damage, damage_json, damage_path

try:
    import test_hostile_files as hostile
except (ImportError, pytest.skip.Exception):  # the packages of the formats are not installed
    hostile = None

FORMATS = {} if hostile is None else hostile.FORMATS
SECONDS, GROWTH_MIB = 10, 1024
LIBRARY_SECONDS = 60
"""A version that takes so long did not end after `SECONDS` either: it is in a loop of a library in C."""
SEARCH = SearchOptions(grid=Grid(2, (4,)), device="cpu")


BRIEF = Training(updates=33, batch=4)
METHOD = replace(METHODS["dbc"], training=BRIEF, guide=DiffusionGuide(training=BRIEF, width=3, depth=1, steps=5))
"""It is interrupted after 32 updates, so that little is left to train after each damaged file."""


def options(base: Path) -> FitOptions:
    return FitOptions(seeds=(0, 1), device="cpu", cache=base / "cache", checkpoint_seconds=0.0, snapshots=(32,))


class Stop(Exception):
    """Ends a training."""


def make_files(base: Path) -> None:
    """Write every kind of file: a finished run with a monitor, interrupted runs, a cache and exports."""
    demos = demonstrations()
    run = train_run(base / "run", METHOD, demos, options(base))
    others = demonstrations(20, seed=1)
    calibrate(run.policy(), others, alpha=0.1).save(base / "policy")
    export(replace(run.policy()[0], guide=None), base / "policy.npz", "numpy")
    export(fit(METHODS["flow-matching"], demos, device="cpu"), base / "flow.npz", "numpy")

    def stop(now: Progress) -> None:
        if (now.stage, now.update) == ("policy", 32):
            raise Stop

    with contextlib.suppress(Stop):
        train_run(base / "interrupted", METHOD, demos, options(base / "interrupted"), progress=stop)

    def stop_search(stage: str, now: Progress) -> None:
        if stage == "final training":
            raise Stop

    with contextlib.suppress(Stop):
        search_in_folder(base / "search", others, SEARCH, stop_search)


def read_policy(base: Path) -> None:
    policy = Policy.load(base / "policy")
    act = policy(np.zeros(2))
    assert np.isfinite(act).all()
    if policy.calibrated_monitor is not None:
        policy.monitor(np.zeros(2), act[0])


def read_run(base: Path) -> None:
    run = Run(base / "run")
    policy = run.policy()
    policy(np.zeros(2))
    assert policy.guide is not None
    policy.guide.cost(np.zeros((1, 2)), np.zeros((1, 1)))
    _ = run.episodes, run.identity(), run.snapshots()
    train_run(base / "run", METHOD, demonstrations(), options(base))


def read_records(base: Path) -> None:
    for record in Record.read_all(base / "run" / "records.jsonl"):
        assert isinstance(record.kind, str)


def resume(base: Path) -> None:
    shutil.rmtree(base / "interrupted" / "cache")  # the checkpoint must be read
    train_run(base / "interrupted", METHOD, demonstrations(), options(base))
    ours, theirs = (read_tensors(base / name / "policy" / "model.safetensors")[0] for name in ("interrupted", "run"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def use_cache(base: Path) -> None:
    once = replace(METHOD, training=Training(updates=1, batch=4))
    train_run(base / "second", once, demonstrations(), replace(options(base), snapshots=()))


def resume_search(base: Path) -> None:
    search_in_folder(base / "search", demonstrations(20, seed=1), SEARCH)


def read_export(base: Path, name: str = "policy.npz") -> None:
    runtime.load(base / name)(np.zeros(2))


def read_demonstrations(base: Path) -> None:
    before = sorted(base.rglob("*"))
    try:
        assert np.isfinite(Demonstrations.load(base / (base / "place").read_text()).obs).all()
    finally:
        assert sorted(base.rglob("*")) == before, "a file was created"


FILES: dict[str, Callable[[Path], None]] = {
    "policy/config.json": read_policy,
    "policy/model.safetensors": read_policy,
    "policy/calibration.json": read_policy,
    "policy/monitor.safetensors": read_policy,
    "run/run.json": read_run,
    "run/episodes.json": read_run,
    "run/parts/guide.safetensors": read_run,
    "run/snapshots/32/config.json": read_run,
    "run/records.jsonl": read_records,
    "interrupted/metrics.jsonl": resume,
    "interrupted/run.json": resume,
    "interrupted/checkpoints/guide.safetensors": resume,
    "interrupted/checkpoints/policy.safetensors": resume,
    "cache/*.safetensors": use_cache,
    "search/search.json": resume_search,
    "policy.npz": read_export,
    "flow.npz": partial(read_export, name="flow.npz"),
}
"""The files, and what reads each of them. Of several files the first is damaged."""
FILES.update({f"{name} demonstrations": read_demonstrations for name in FORMATS})


def damage_file(path: Path, rng: random.Random) -> None:
    """Change bytes, or values of JSON, or values in the header of a safetensors file."""
    content = path.read_bytes()
    structured = rng.random() < 0.5
    if structured and path.suffix == ".json":
        path.write_bytes(damage_json(content, rng))
    elif structured and path.suffix == ".jsonl":
        lines = content.splitlines()
        k = rng.randrange(len(lines))
        lines[k] = damage_json(lines[k], rng)
        path.write_bytes(b"\n".join(lines) + b"\n")
    elif structured and path.suffix == ".safetensors":
        size = int.from_bytes(content[:8], "little")
        header = damage_json(content[8 : 8 + size], rng)
        path.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + size :])
    else:
        path.write_bytes(damage(content, rng))


class Hang(BaseException):
    """Raised when the time is up."""


def raise_hang(*arguments: Any) -> None:
    raise Hang


def outcome(work: Callable[[], None]) -> tuple[str, str]:
    """Return how some work ends, and the message of an error."""
    signal.alarm(SECONDS)
    try:
        work()
    except (DiffcloneError, runtime.InvalidPolicy) as error:
        message = str(error)
        return "refused" if message.isprintable() and len(message) < 1500 else "traceback", message
    except Hang:
        return "hang", ""
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return "valid", ""


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


Outcome: TypeAlias = tuple[str, str, float]
"""How it ended, the message, and the growth in MiB."""


def damage_and_read(good: Path, name: str, place: Path | None, number: int) -> Outcome:
    """Read one damaged version."""
    work = good.with_name("work")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(good, work)
    rng = random.Random(f"{name} {number}")
    if place is None:
        damage_file(min(work.glob(name)), rng)
    else:
        damage_path(work / place, rng)
    before = peak_mib()
    kind, message = outcome(lambda: FILES[name](work))
    return kind, message, round(peak_mib() - before, 1)


def read_in_fork(numbers: Sequence[int], read: Callable[[int], Outcome]) -> list[Outcome]:
    """Read damaged versions in a fork until one kills it, or stops it in a library that no signal interrupts."""
    pipe, write = os.pipe()
    child = os.fork()
    if child == 0:
        for number in numbers:
            os.write(write, json.dumps(read(number)).encode() + b"\n")
        os._exit(0)
    os.close(write)
    found: list[Outcome] = []
    text = b""
    while len(found) < len(numbers):
        stopped = not select.select([pipe], [], [], LIBRARY_SECONDS)[0]
        part = b"" if stopped else os.read(pipe, 2**16)
        if not part:
            found.append(("hang", "in a library", 0.0) if stopped else ("traceback", "the process ended", 0.0))
            break
        *lines, text = (text + part).split(b"\n")
        found += [tuple(json.loads(line)) for line in lines]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(pipe)
    return found


def try_file(good: Path, name: str, count: int, first: int = 0) -> dict[str, Any]:
    """Read `count` damaged versions of a file; return the counts."""
    counts: dict[str, Any] = {"file": name, "count": count, "valid": 0, "refused": 0, "traceback": 0, "hang": 0}
    counts |= {"MiB": 0.0, "examples": []}
    place = None
    if name.endswith(" demonstrations"):
        filename, make = FORMATS[name.removesuffix(" demonstrations")]
        good = good.with_name(name)
        good.mkdir()
        place = make(good / filename).relative_to(good)
        (good / "place").write_text(str(place))
        FILES[name](good)
    number, end = first, first + count
    while number < end:
        for kind, message, growth in read_in_fork(
            range(number, end), lambda number: damage_and_read(good, name, place, number)
        ):
            counts[kind] += 1
            counts["MiB"] = max(counts["MiB"], growth)
            if kind in ("traceback", "hang") or growth > GROWTH_MIB:
                counts["examples"].append([number, kind, message[:300], growth])
            number += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=list(FILES), help="files to damage")
    parser.add_argument("--count", type=int, default=500, help="damaged versions of each file")
    parser.add_argument("--out", type=Path, help="file that gets one Record per file")
    parser.add_argument("--first", type=int, default=0, help="number of the first version")
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, raise_hang)
    resource.setrlimit(resource.RLIMIT_DATA, (4 * 2**30, 4 * 2**30))  # a failure must not take the whole machine
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder) / "good")
        for name in arguments.files:
            begun = time.monotonic()
            counts = try_file(Path(folder) / "good", name, arguments.count, arguments.first)
            print(json.dumps(counts), flush=True)
            if arguments.out is not None:
                settings = {"test": "damaged files", "first": arguments.first, "count": arguments.count}
                Record("faults", settings, [], {}, counts, "cpu", time.monotonic() - begun).append_to(arguments.out)


if __name__ == "__main__":
    main()
