"""The servers that benchmarks/serving.py compares, each in a process of its own with the same policy.

`diffclone` is this version. `diffclone 0.2` is the server before it, read from the history of the repository. `FastAPI`
is a plain application as in FastAPI's documentation: one function, JSON alone, no checks.
"""

import asyncio
import multiprocessing
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import torch

from diffclone import Policy
from diffclone.cli.console import print_message
from diffclone.deploy.server import Server, serve

OLD_SERVER = "37b1e76:src/diffclone/deploy/server.py"
ROOT = Path(__file__).parent.parent
JSON, NPY = "application/json", "application/x-npy"
BODIES = {"diffclone": (JSON, NPY), "diffclone 0.2": (JSON, NPY), "FastAPI": (JSON,)}
"""The servers and the bodies that they take."""


def serve_new(folder: str, ports: Any) -> None:
    """Serve with this version."""
    torch.set_num_threads(1)
    serve(Server(Policy.load(folder)), "127.0.0.1", 0, ports.put)


def serve_old(folder: str, ports: Any) -> None:
    """Serve with version 0.2."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "old_server.py"
        path.write_bytes(subprocess.check_output(["git", "show", OLD_SERVER], cwd=ROOT))
        spec = spec_from_file_location("old_server", path)
        assert spec is not None
        assert spec.loader is not None
        old = module_from_spec(spec)
        spec.loader.exec_module(old)
    asyncio.run(old.serve(old.Server(Policy.load(folder)), "127.0.0.1", 0, ports.put))


def serve_fastapi(folder: str, ports: Any) -> None:
    """Serve with FastAPI."""
    import fastapi
    import uvicorn
    from pydantic import BaseModel

    torch.set_num_threads(1)
    policy, app = Policy.load(folder), fastapi.FastAPI()

    class Observation(BaseModel):
        observation: list[float]

    @app.post("/act")
    def act(body: Observation) -> dict[str, list[float]]:
        return {"action": policy(np.array(body.observation, np.float32)).tolist()}

    del act
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", access_log=False))

    def announce() -> None:
        while not server.started:
            time.sleep(0.05)
        ports.put(server.servers[0].sockets[0].getsockname()[1])

    threading.Thread(target=announce, daemon=True).start()
    server.run()


SERVERS: dict[str, Callable[[str, Any], None]] = {
    "diffclone": serve_new,
    "diffclone 0.2": serve_old,
    "FastAPI": serve_fastapi,
}


def available() -> list[str]:
    """Return the servers that can run here. Print the way out for the others."""
    found = list(SERVERS)
    if find_spec("fastapi") is None:
        found.remove("FastAPI")
        print_message("FastAPI is left out; to compare with it: pip install -c constraints.txt -e '.[bench]'.")
    if subprocess.run(["git", "cat-file", "-e", OLD_SERVER], cwd=ROOT, capture_output=True, check=False).returncode:
        found.remove("diffclone 0.2")
        print_message("The server of version 0.2 is left out; to compare with it, run in a clone with its history.")
    return found


@contextmanager
def running(policy: Policy, names: list[str]) -> Generator[dict[str, tuple[int, int]], None, None]:
    """Run servers. Yield the port and the process id of each."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        policy.save(folder := Path(place) / "policy")
        processes: list[Any] = []
        found: dict[str, tuple[int, int]] = {}
        try:
            for name in names:
                ports = context.Queue()
                process = context.Process(target=SERVERS[name], args=(str(folder), ports), daemon=True)
                process.start()
                processes.append(process)
                found[name] = ports.get(timeout=120), process.pid or 0
            yield found
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()
