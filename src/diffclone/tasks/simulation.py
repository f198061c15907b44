"""MuJoCo for many rows at once: states are rows of an array, advanced by threads that need no interpreter."""

import importlib
import os
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks.batch import Rows

# MuJoCo's bindings carry no types; this file is the only one that touches them.
mujoco: Any = importlib.import_module("mujoco")
rollout: Any = importlib.import_module("mujoco.rollout")


@final
class Simulation:
    """`count` states of one model: time, then positions, then velocities."""

    def __init__(self, xml: str, count: int):
        threads = os.cpu_count() or 1
        model = mujoco.MjModel.from_xml_string(xml)
        self.model = model
        self.states = np.zeros((count, mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
        self.positions = self.states[:, 1 : 1 + model.nq]
        self.velocities = self.states[:, 1 + model.nq : 1 + model.nq + model.nv]
        self._scratch = [mujoco.MjData(model) for _ in range(min(threads, max(1, count // 16)))]
        self._pool = rollout.Rollout(nthread=len(self._scratch) if len(self._scratch) > 1 else 0)

    def advance(self, rows: Rows, control: npt.NDArray[np.float64], substeps: int) -> None:
        """Hold a control, (rows, controls), for some substeps."""
        held = np.repeat(control[:, None, :], substeps, axis=1)
        after, _ = self._pool.rollout(self.model, self._scratch, self.states[rows], held)
        self.states[rows] = after[:, -1]

    def close(self) -> None:
        """End the threads."""
        self._pool.close()
