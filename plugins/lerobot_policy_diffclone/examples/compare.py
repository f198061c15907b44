"""Train DBC by `lerobot-train` and by diffclone on one LeRobot dataset, play both by `lerobot-eval`, write a Record.

python compare.py FOLDER RECORDS.jsonl

Both have the same networks, learning rates, numbers of updates and batch size, and start from other seeds.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from diffclone import Demonstrations, fit
from diffclone.methods import METHODS
from diffclone.records import Record
from diffclone.settings import from_dict, to_dict

EPISODES, STEPS, BATCH, PLAYED = 30, 2000, 64, 50
METHOD: dict[str, Any] = {
    "type": "dbc",
    "training": {"lr": 0.001},
    "guide": {"type": "diffusion", "training": {"lr": 0.001}},
}
BIN = Path(sys.executable).parent


def run(*command: object) -> float:
    """Run a command and return its seconds."""
    begun = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    return time.monotonic() - begun


def play(policy: Path, out: Path) -> dict[str, Any]:
    """Return the mean return and its spread over episodes in LeRobot's evaluation."""
    seconds = run(
        BIN / "lerobot-eval",
        f"--policy.path={policy}",
        "--policy.device=cpu",
        "--env.type=gymnasium_state",
        "--env.task=Pendulum-v1",
        f"--eval.n_episodes={PLAYED}",
        "--eval.batch_size=10",
        "--eval.use_async_envs=false",
        f"--output_dir={out}",
    )
    episodes = json.loads((out / "eval_info.json").read_text())["per_task"][0]["metrics"]["sum_rewards"]
    return {"returns": [round(value, 2) for value in episodes], "seconds": seconds}


def main(folder: Path, records: Path) -> None:
    """Run all steps in a new folder."""
    data, here = folder / "data", Path(__file__).parent
    run(sys.executable, here / "record_pendulum.py", data, EPISODES)
    seconds = run(
        BIN / "lerobot-train",
        "--dataset.repo_id=local/pendulum",
        f"--dataset.root={data}",
        "--policy.type=diffclone",
        "--policy.device=cpu",
        f"--policy.guide_steps={STEPS}",
        f"--policy.method={json.dumps(METHOD)}",
        f"--steps={2 * STEPS}",
        f"--batch_size={BATCH}",
        "--num_workers=0",
        f"--save_freq={2 * STEPS}",
        f"--output_dir={folder / 'train'}",
    )
    results = {"lerobot-train": {"seconds": seconds}}
    results["lerobot-train"]["evaluation"] = play(
        folder / "train" / "checkpoints" / "last" / "pretrained_model", folder / "eval-lerobot"
    )
    length = {"updates": STEPS, "batch": BATCH}
    settings = {**METHOD, "training": {**METHOD["training"], **length}}
    settings["guide"] = {**METHOD["guide"], "training": {**METHOD["guide"]["training"], **length}}
    method, demos = from_dict(METHODS, settings, "method"), Demonstrations.load(data)
    begun = time.monotonic()
    fit(method, demos, suggest=False, device="cpu").save(folder / "policy")
    results["diffclone"] = {"seconds": time.monotonic() - begun}
    run(sys.executable, "-m", "lerobot_policy_diffclone.convert", "to-lerobot", folder / "policy", folder / "converted")
    results["diffclone"]["evaluation"] = play(folder / "converted", folder / "eval-diffclone")
    load = os.getloadavg()[0]
    Record(
        kind="benchmark",
        settings={"benchmark": "lerobot", "method": to_dict(method), "env": "Pendulum-v1", "episodes": PLAYED},
        members=[],
        data={"episodes": demos.num_episodes, "steps": demos.num_steps, "fingerprint": demos.fingerprint},
        results={**results, "load_after": round(load, 1)},
        device=f"cpu, {os.cpu_count()} cores",
        seconds=sum(value["seconds"] for value in results.values()),
    ).append_to(records)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
