"""Updates a second of other packages, each in an environment of its own, beside ours: one member, Maze's sizes, CPU.

python -m benchmarks.peers                           all, a table
python -m benchmarks.peers --json --out FILE         also a Record a peer, appended to FILE

`d3rlpy`, `imitation` and `jax` for BC, `diffusers` for the step of the diffusion model; `jax-8` trains eight members at
once, as ours beside it. Each is installed from the package
index into a virtual environment in a cache folder, with PyTorch held at the version that runs this; what does not
install is told with the last line of pip's answer. Ours and a peer take turns (`speed.timing`). Networks have
the same sizes; imitation's is an actor and a critic, and fits a Gaussian.
"""

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
import tyro

from benchmarks.peer_loops import SCANNED
from benchmarks.speed.cases import Case, ours, prepare_setup
from benchmarks.speed.tables import round_to_3_digits
from benchmarks.speed.timing import Candidate, describe_machine, time_in_turns
from diffclone.cli.console import print_json, print_message, print_table
from diffclone.records import Record

LOOPS = Path(__file__).parent / "peer_loops.py"
CASES = {
    "d3rlpy": Case("bc", "maze", 1),
    "imitation": Case("bc", "maze", 1),
    "diffusers": Case("guide", "maze", 1),
    "jax": Case("bc", "maze", 1),
    "jax-8": Case("bc", "maze", 8),
}
"""What each trains."""
PACKAGES = {"jax": ("jax==0.10.2",), "jax-8": ("jax==0.10.2",)}
"""What is installed for a peer, if that is not PyTorch and the package of its name."""


@final
class CannotRun(Exception):
    """With the last line of what pip, or the peer, said."""


@final
class Peer:
    """Another interpreter that does updates when told."""

    def __init__(self, python: Path, name: str, pairs: Path):
        self.process = subprocess.Popen(
            [str(python), str(LOOPS), name, str(pairs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.about: dict[str, Any] = self.told()

    def told(self) -> Any:
        """Its next answer; what else it prints is not for us."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                continue
        assert self.process.stderr is not None
        raise CannotRun((self.process.stderr.read().strip().splitlines() or ["it ended"])[-1])

    def run(self, count: int) -> None:
        """Do updates."""
        self.cpu_seconds(count)

    def cpu_seconds(self, count: int) -> float:
        """Do updates and return their CPU time."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return self.told()["cpu_seconds"]

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def environment(folder: Path, package: str, seconds: float) -> Path:
    """The interpreter of an environment that has the package, made where it is not there yet."""
    home = folder / package.partition("-")[0]
    python, ready = home / "bin/python", home / "ready"
    if ready.exists():
        return python
    venv.create(home, with_pip=True, clear=True)
    held = folder / "held.txt"
    held.write_text(f"torch=={importlib.metadata.version('torch').partition('+')[0]}\n", encoding="utf-8")
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-c", str(held)]
    command += PACKAGES.get(package, ("torch", package))
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise CannotRun(f"pip was not done after {seconds:.0f} seconds") from None
    if done.returncode:
        raise CannotRun((done.stderr.strip().splitlines() or ["pip failed"])[-1])
    ready.touch()
    return python


def count_by_cpu_time(ours: Candidate, peer: Any, name: str, window: float, rounds: int) -> dict[str, Any]:
    """Updates per second of CPU time, the median over turns, for a machine with other work. All run on one core."""

    def own_seconds(count: int) -> float:
        begun = time.process_time()
        ours.run(count)
        return time.process_time() - begun

    timers = {"ours": own_seconds, name: peer.cpu_seconds}
    counts: dict[str, int] = {}
    for who, timer in timers.items():
        timer(2 * SCANNED)
        counts[who] = max(1, round(window / timer(SCANNED))) * SCANNED
    rates: dict[str, list[float]] = {who: [] for who in timers}
    for _ in range(rounds):
        for who, timer in timers.items():
            rates[who].append(counts[who] / timer(counts[who]))
    return {
        who: {
            "updates_per_second": float(np.median(found)),
            "slowest": min(found),
            "fastest": max(found),
            "members": ours.members,
            "threads": 1,
        }
        for who, found in rates.items()
    }


def measure(
    name: str, folder: Path, *, seconds: float, window: float, rounds: int, cpu_time: bool = False
) -> dict[str, Any]:
    """Rates of ours and of the peer, or why there are none."""
    cores = os.sched_getaffinity(0)
    if cpu_time:
        os.sched_setaffinity(0, {min(cores)})  # the peer, which is started now, inherits it
        torch.set_num_threads(1)
    given = prepare_setup(CASES[name], torch.device("cpu"))
    try:
        python = environment(folder, name, seconds)
        with tempfile.TemporaryDirectory() as temporary:
            pairs = Path(temporary) / "pairs.npz"
            np.savez(pairs, obs=given.session.data.obs.numpy(), act=given.session.data.act.numpy())
            peer = Peer(python, name, pairs)
    except CannotRun as fault:
        return {"left_out": str(fault)}
    block = SCANNED if name in PACKAGES else 1
    if cpu_time:
        try:
            rates = count_by_cpu_time(ours(given), peer, name, window, rounds)
        finally:
            peer.close()
            os.sched_setaffinity(0, cores)
        ratio = rates["ours"]["updates_per_second"] / rates[name]["updates_per_second"]
        return {"rates": rates, "ratio": ratio, "peer": peer.about, "clock": "cpu"}
    playing = [ours(given), Candidate(name, CASES[name].members, peer.run, block, sets_threads=True)]
    try:
        timed = time_in_turns(playing, torch.device("cpu"), window=window, rounds=rounds)
    finally:
        peer.close()
    rates = {who: found.to_dict() for who, found in timed.items()}
    rates[name]["threads"] = peer.about["threads"]
    return {"rates": rates, "ratio": timed["ours"].rate / timed[name].rate, "peer": peer.about}


@dataclass(frozen=True)
class Peers:
    """Time the updates of other packages."""

    peers: tuple[str, ...] = tuple(CASES)
    """Which."""
    folder: Path = Path(tempfile.gettempdir()) / "diffclone-peers"
    """Where their environments are kept."""
    seconds: float = 300.0
    """How long an installation may take."""
    rounds: int = 5
    """Turns of each candidate."""
    window: float = 1.0
    """Seconds of a turn."""
    cpu_time: bool = False
    """Count CPU time on one core instead of time: for a machine with other work."""
    json: bool = False
    """Print the Records instead of a table."""
    out: Path | None = None
    """A file of Records to append to."""

    def run(self) -> None:
        """Do it."""
        records: list[Record] = []
        for name in self.peers:
            print_message(f"{name}: installing where it is not, then taking turns")
            begun = time.monotonic()
            found = measure(
                name, self.folder, seconds=self.seconds, window=self.window, rounds=self.rounds, cpu_time=self.cpu_time
            )
            records.append(
                Record(
                    kind="benchmark",
                    settings={
                        "benchmark": "peers",
                        "peer": name,
                        "case": asdict(CASES[name]),
                        "machine": describe_machine(),
                        "rounds": self.rounds,
                        "window": self.window,
                    },
                    members=[],
                    data={},
                    results=found,
                    device="cpu",
                    seconds=time.monotonic() - begun,
                )
            )
            if self.out is not None:
                records[-1].append_to(self.out)
        if self.json:
            print_json([asdict(record) for record in records])
            return
        rows: list[list[str]] = []
        for record in records:
            name, results = record.settings["peer"], record.results
            if "left_out" in results:
                rows.append([name, "–", "–", results["left_out"]])
                continue
            rates = [round_to_3_digits(results["rates"][who]["updates_per_second"]) for who in (name, "ours")]
            rows.append([name, *rates, f"{round_to_3_digits(results['ratio'])} ×"])
        print_table("Updates a second, one member, CPU", ["peer", "its", "ours", "ratio"], rows)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # pyright: ignore[reportAttributeAccessIssue]
    tyro.cli(Peers, prog="python -m benchmarks.peers").run()
