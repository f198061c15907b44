"""`fit`: train a method on demonstrations and return a policy."""

import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, final, get_args

import torch
from torch import nn

from diffclone.data import AnyDemonstrations, Demonstrations, Normaliser, Streamed
from diffclone.data.formats import ReadOptions, open_blocks, read
from diffclone.data.formats.memory import parse_bytes
from diffclone.data.formats.options import NO_OPTIONS
from diffclone.data.joining import check_same_columns
from diffclone.errors import DiffcloneWarning, InvalidData, InvalidSettings
from diffclone.model import Method
from diffclone.policy import Policy
from diffclone.settings import check_sizes, check_types, to_dict
from diffclone.training import Precision, Progress, Stack, suggestion, train
from diffclone.training.checkpoint import GuideCache, lock_checkpoints
from diffclone.training.display import choose_bars
from diffclone.training.feed import choose_sizes
from diffclone.training.guide import TrainedGuide
from diffclone.training.loop import Diverged, Trained, run_reporting
from diffclone.training.session import Session, describe_data, normalise_demonstrations, prepare_session
from diffclone.training.windows import check_windows

OnProgress = Callable[[Progress], None]


@final
@dataclass(frozen=True, eq=False)
class FitOptions:
    """The options of a training, besides the method and the demonstrations."""

    seeds: int | Sequence[int] = (0,)
    """Train one member per seed. A number N means the seeds 0 to N − 1."""
    vary: Mapping[str, Sequence[float]] | None = None
    """Values of stackable fields; members are all combinations of them and the seeds."""
    device: str = "auto"
    """A device by torch's name, or "auto"."""
    precision: Precision = "float32"
    """Precision of matrix products."""
    held_out: Demonstrations | None = None
    """Demonstrations that are not trained on; losses on them are reported."""
    checkpoints: str | Path | None = None
    """Folder of checkpoints, written while training and resumed from."""
    checkpoint_seconds: float = 30.0
    """Longest time between two checkpoints."""
    cache: str | Path | None = None
    """Folder of trained guides, searched before a guide is trained."""
    guide_seed: int | None = None
    """Seed of one guide, and of its encoder, that all members share. By default each seed trains a guide of its own."""
    snapshots: Sequence[int] = ()
    """Updates at which the policy's weights are copied (their moving average, if `training.ema` is set). The result is
    the same with and without snapshots."""
    enough: Callable[[Progress], bool] | None = None
    """Called with each report; True ends the stage there, and later snapshots are not made."""
    dtype: torch.dtype = torch.float32
    """Data type of weights and data. Contract tests use float64."""


@final
@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a training."""

    policy: Policy
    trained: Trained
    seconds: float
    snapshots: Mapping[int, Policy]
    """The policy at the updates of `FitOptions.snapshots`, in order. All have the same guide."""


def fit(
    method: Method[Any],
    demos: AnyDemonstrations | str | Path,
    *,
    seeds: int | Sequence[int] = (0,),
    vary: Mapping[str, Sequence[float]] | None = None,
    device: str = "auto",
    precision: Precision = "float32",
    held_out: Demonstrations | None = None,
    checkpoints: str | Path | None = None,
    cache: str | Path | None = None,
    suggest: bool = True,
    memory: str | int | None = None,
    progress: OnProgress | bool | None = None,
) -> Policy:
    """Train one member per seed (and per combination of `vary`), all at once.

    Sizes and schedules that `method` does not set are chosen for the demonstrations, as `diffclone train` does.

    Args:
        method: the method to train, with its settings: `BC()`, `DBC(coefficient=10.0)`, …
        demos: the demonstrations to learn from, or the file or folder to read them from.
        seeds: one member per seed; a number N means the seeds 0 to N − 1.
        vary: values of stackable fields, e.g. `{"coefficient": [0, 10, 30]}`; members are all combinations.
        device: "cpu", "cuda", "cuda:1", "mps", or "auto" for a CUDA GPU if there is one.
        precision: of matrix products: "float32", or "tf32" and "bfloat16", which are faster on a GPU for wide networks.
        held_out: demonstrations that are not trained on; losses on them are reported next to the training losses.
        checkpoints: a folder to write the state of training to, and to resume from.
        cache: a folder of trained guides, searched before a guide is trained.
        suggest: whether to choose the sizes and schedules that `method` leaves at their defaults
            (`diffclone.training.suggestion`); if not, the defaults of the classes are used. Values you set always stay.
        memory: "4GB", "500MB", … or a number of bytes: the memory that this process may use. Demonstrations in a file
            or folder that do not fit are read in blocks while training (docs/scale.md).
        progress: by default a progress bar in a terminal and in a notebook, and nothing elsewhere. False for none, True
            for lines where a bar cannot be shown, or a function, called a few hundred times with the state of training.

    Returns:
        A policy with one member per seed and combination. Members that diverged are listed in `diverged`.
    """
    options = FitOptions(
        seeds=seeds,
        vary=vary,
        device=device,
        precision=precision,
        held_out=held_out,
        checkpoints=checkpoints,
        cache=cache,
    )
    check_method(method)
    demos = open_demonstrations(demos, memory)
    method = suggestion.suggest(method, demos) if suggest else method
    with reporter(progress=progress) as report:
        policy = fit_with_options(method, demos, options, report).policy
    if policy.diverged:
        names = "; ".join(", ".join(f"{k} {v:g}" for k, v in policy.members[m].items()) for m in policy.diverged)
        warnings.warn(
            f"{len(policy.diverged)} of {len(policy)} members diverged (NaN weights): {names}. They are listed in "
            "policy.diverged. Try a smaller learning rate.",
            DiffcloneWarning,
            stacklevel=2,
        )
    return policy


def open_demonstrations(
    source: AnyDemonstrations | str | Path, memory: str | int | None, options: ReadOptions = NO_OPTIONS
) -> AnyDemonstrations:
    """Read demonstrations, or open them for reading in blocks if they do not fit into `memory`."""
    if isinstance(source, str | Path):
        return read(source, options) if memory is None else open_blocks(source, options, parse_bytes(memory))
    check_demonstrations("demos", source)
    if memory is not None and isinstance(source, Demonstrations):
        raise InvalidSettings("memory is for demonstrations in files; these are in memory already. Give their path.")
    return (
        source if memory is None or isinstance(source, Demonstrations) else replace(source, memory=parse_bytes(memory))
    )


def fit_with_options(
    method: Method[Any],
    demos: AnyDemonstrations,
    options: FitOptions,
    progress: OnProgress = lambda progress: None,
) -> Fitted:
    """Train a method with exactly these settings; also return the weights of the parts and the time taken."""
    begun = time.monotonic()
    check_options(method, options, demos)
    normaliser, session = open_session(method, demos, options)
    device, stack = session.device, Stack.of(method, options.seeds, options.vary)
    with lock_checkpoints(session.checkpoints):
        trained = run_reporting(train(method, stack, session), progress)
    diverged = find_diverged(trained.net)
    if len(diverged) == len(stack.members):
        raise Diverged("training diverged: no member has finite weights. Try a smaller learning rate.")
    bounds = demos.action_bounds
    policy = Policy(
        method,
        trained.net,
        normaliser,
        stack.members,
        None if bounds is None else (torch.tensor(bounds[0]).to(device), torch.tensor(bounds[1]).to(device)),
        describe_data(demos),
        guide=TrainedGuide(method, normaliser.windows(method.chunks), lambda: trained.parts)
        if "guide" in trained.parts
        else None,
        diverged=diverged,
    )
    snapshots = {
        update: replace(policy, net=net, diverged=find_diverged(net), calls=count())
        for update, net in trained.snapshots.items()
    }
    return Fitted(policy, trained, time.monotonic() - begun, snapshots)


@contextmanager
def reporter(*, progress: OnProgress | bool | None) -> Generator[OnProgress, None, None]:
    """Yield the function that shows reports, as `fit` describes it."""
    if callable(progress):
        yield progress
        return
    with choose_bars(progress=progress) as bars:
        yield (lambda now: None) if bars is None else (lambda now: bars.training("", now))


def find_diverged(net: nn.Module) -> list[int]:
    """Return the members whose weights are not finite."""
    finite = torch.stack([p.detach().flatten(1).isfinite().all(1) for p in net.parameters()]).all(0)
    return [m for m, good in enumerate(finite.tolist()) if not good]


def check_method(method: Any) -> None:
    """Refuse anything but a method, and settings that no training can have."""
    if not isinstance(method, Method):
        what = f"the class {method.__name__}" if isinstance(method, type) else f"of type {type(method).__name__}"
        raise InvalidSettings(f"the first argument must be a method, such as BC() or DBC(); it is {what}.")
    check_types(method)
    check_sizes(method)


def check_demonstrations(name: str, demos: Any, kind: Any = AnyDemonstrations) -> None:
    """Refuse anything but demonstrations."""
    if not isinstance(demos, kind):
        raise InvalidData(
            f"{name} must be Demonstrations, which Demonstrations.load(path) and Demonstrations.from_arrays(obs, act, "
            f"episode_ends=[…]) return; it is of type {type(demos).__name__}."
        )


def check_options(method: Method[Any], options: FitOptions, demos: AnyDemonstrations) -> None:
    """Refuse settings and options that cannot be trained with on these demonstrations."""
    check_method(method)
    check_demonstrations("demos", demos)
    if options.held_out is not None:
        check_demonstrations("held_out", options.held_out, Demonstrations)
        check_same_columns("used as demos and held_out", demos, options.held_out)
    if options.precision not in get_args(Precision):
        raise InvalidSettings(f"precision must be {' or '.join(get_args(Precision))}; it is {options.precision!r}.")
    check_windows(method.chunks, demos)
    if isinstance(demos, Streamed):
        choose_sizes(demos, method.chunks, options.dtype)
    Stack.of(method, options.seeds, options.vary)
    choose_device(options.device)
    last = method.training.updates
    if wrong := [update for update in options.snapshots if not 1 <= update <= last]:
        raise InvalidSettings(
            f"snapshots must be updates from 1 to {last:,}, where the training ends; {', '.join(map(str, wrong))} "
            f"{'is' if len(wrong) == 1 else 'are'} not."
        )
    parts = method.needs().values()
    if options.guide_seed is not None and not (parts and all(part.trained == "before" for part in parts)):
        raise InvalidSettings(
            f"guide_seed is {options.guide_seed}, but {type(method).__name__} has no guide that is trained before the "
            "policy and can be shared. Leave it out."
        )


def open_session(method: Method[Any], demos: AnyDemonstrations, options: FitOptions) -> tuple[Normaliser, Session]:
    """Return the normaliser of the demonstrations, and the data, the device and the files that training uses."""
    device, held_out, precision = choose_device(options.device), options.held_out, options.precision
    chunks, dtype = method.chunks, options.dtype
    normaliser, session = prepare_session(demos, method.normalisation, device, dtype, chunks)
    vary = Stack.of(method, options.seeds, options.vary).vary
    identity = {"method": to_dict(method), "vary": {name: list(values) for name, values in vary.items()}}
    if options.guide_seed is not None:
        identity["guide_seed"] = options.guide_seed
    if options.snapshots:
        identity["snapshots"] = sorted({*options.snapshots})
    return normaliser, replace(
        session,
        checkpoints=None if options.checkpoints is None else Path(options.checkpoints),
        cache=None if options.cache is None else GuideCache(Path(options.cache)),
        identity=identity,
        held_out=None if held_out is None else normalise_demonstrations(held_out, normaliser, device, dtype, chunks),
        checkpoint_seconds=options.checkpoint_seconds,
        precision=precision,
        data_identity={**session.data_identity, **({} if precision == "float32" else {"precision": precision})},
        guide_seed=options.guide_seed,
        snapshots=options.snapshots,
        enough=options.enough,
    )


def choose_device(name: str) -> torch.device:
    """Return the device with this name; "auto" is a CUDA GPU if there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise InvalidSettings(f"unknown device {name!r}; use auto, cpu, cuda, cuda:N or mps.")
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[device.type]
    if not count:
        raise InvalidSettings(f"no {device.type.upper()} device is available; use --device cpu or auto.")
    if (device.index or 0) >= count:
        raise InvalidSettings(f"there is no device {name}; the last one is {device.type}:{count - 1}.")
    return device
