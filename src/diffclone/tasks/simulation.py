"""MuJoCo for many rows at once: states are rows of an array, advanced by threads that need no interpreter.

A state is all there is: nothing of an earlier step is kept beside it (no warm start), so that a row's future depends on
its state and its controls alone. Sensors are those of the last substep's beginning, which is what MuJoCo's own data
holds after a step.
"""

import importlib
import importlib.util
import os
import sys
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from diffclone.errors import CannotRender, MissingPackage
from diffclone.tasks.batch import Doubles, Picture, Rows


def load_mujoco() -> Any:
    """MuJoCo, told how to draw without a screen where there is none: it reads that from the environment when imported.

    Only what is installed is named, for MuJoCo cannot even be imported with a library that is not there.
    """
    if without_screen() and "MUJOCO_GL" not in os.environ:
        ways = ("EGL", "OSMesa") if Path("/dev/dri").exists() else ("OSMesa", "EGL")
        if found := next((way for way in ways if find_library(way)), None):
            os.environ["MUJOCO_GL"] = found.lower()
    try:
        return importlib.import_module("mujoco")
    except (AttributeError, OSError, RuntimeError) as fault:
        raise cannot_draw(type(fault).__name__) from None


def without_screen() -> bool:
    """Whether a window could not be opened."""
    return sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def cannot_draw(why: str) -> CannotRender:
    """What OpenGL raises depends on which part of it is missing; the way out does not."""
    return CannotRender(
        f"MuJoCo cannot draw here (MUJOCO_GL is {os.environ.get('MUJOCO_GL', 'not set')}; {why}). "
        "Without a screen it needs OSMesa (on Debian: apt-get install libosmesa6, then MUJOCO_GL=osmesa) or EGL "
        "(a GPU's, or apt-get install libegl1, then MUJOCO_GL=egl); MUJOCO_GL=disable does without pictures."
    )


# MuJoCo's bindings carry no types; this file is the only one that touches them.
mujoco: Any = load_mujoco()
rollout: Any = importlib.import_module("mujoco.rollout")

PICTURE_HEIGHT, PICTURE_WIDTH = 360, 480


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@final
@dataclass(frozen=True)
class Camera:
    """Where a picture is taken from: a point looked at, and the way back from it."""

    lookat: tuple[float, float, float]
    distance: float
    azimuth: float = 90.0
    elevation: float = -45.0
    follow: str | None = None
    """A body that is looked at instead of the point."""


@final
class Simulation:
    """`count` states of one model: time, then positions, then velocities."""

    def __init__(self, xml: str, count: int, *, rows_a_thread: int = 16):
        """Compile `xml`; a thread is worth its while from `rows_a_thread` rows on."""
        threads = cores()
        model = mujoco.MjModel.from_xml_string(xml)
        self.model = model
        self.states = np.zeros((count, mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
        self.positions = self.states[:, 1 : 1 + model.nq]
        self.velocities = self.states[:, 1 + model.nq : 1 + model.nq + model.nv]
        self.sensors = np.zeros((count, model.nsensordata))
        self._scratch = [mujoco.MjData(model) for _ in range(min(threads, max(1, count // rows_a_thread)))]
        self._pool = rollout.Rollout(nthread=len(self._scratch) if len(self._scratch) > 1 else 0)
        self._renderer: Any = None

    def advance(self, rows: Rows, control: Doubles, substeps: int) -> None:
        """Hold a control, (rows, controls), for some substeps.

        A control is the actuators', and may go on with places and then quaternions of the bodies moved by hand; without
        them those bodies stay where the model has them.
        """
        meant = mujoco.mjtState.mjSTATE_CTRL.value
        if control.shape[1] > self.model.nu:
            meant |= mujoco.mjtState.mjSTATE_MOCAP_POS.value | mujoco.mjtState.mjSTATE_MOCAP_QUAT.value
        held = np.repeat(control[:, None, :], substeps, axis=1)
        after, sensors = self._pool.rollout(self.model, self._scratch, self.states[rows], held, control_spec=meant)
        self.states[rows] = after[:, -1]
        if sensors is not None and self.model.nsensordata:
            self.sensors[rows] = sensors[:, -1]

    def sense(self, rows: Rows) -> None:
        """Sensors of states that were set, not stepped to."""
        data = self._scratch[0]
        for row in rows:
            self._set(data, int(row))
            mujoco.mj_forward(self.model, data)
            self.sensors[row] = data.sensordata

    def picture(self, row: int, camera: Camera, mocap: Doubles | None = None) -> Picture:
        """What a row looks like; `mocap` are poses (bodies, 7) of the bodies moved by hand."""
        data = mujoco.MjData(self.model)
        self._set(data, row)
        if mocap is not None:
            data.mocap_pos[:], data.mocap_quat[:] = mocap[:, :3], mocap[:, 3:]
        mujoco.mj_forward(self.model, data)
        view = mujoco.MjvCamera()
        view.lookat[:] = camera.lookat if camera.follow is None else data.body(camera.follow).xpos
        view.distance, view.azimuth, view.elevation = camera.distance, camera.azimuth, camera.elevation
        if self._renderer is None:
            self._renderer = self._make_renderer()
        self._renderer.update_scene(data, view)
        return self._renderer.render()

    def close(self) -> None:
        """End the threads."""
        self._pool.close()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _set(self, data: Any, row: int) -> None:
        mujoco.mj_resetData(self.model, data)
        mujoco.mj_setState(self.model, data, self.states[row], mujoco.mjtState.mjSTATE_FULLPHYSICS)

    def _make_renderer(self) -> Any:
        context = getattr(mujoco, "GLContext", None)
        if context is None or (without_screen() and context.__module__.startswith("mujoco.glfw")):
            raise cannot_draw("no screen")  # a window that cannot be opened ends the whole process
        try:
            return mujoco.Renderer(self.model, PICTURE_HEIGHT, PICTURE_WIDTH)
        except Exception as fault:
            raise cannot_draw(type(fault).__name__) from None


def package_folder(package: str, task: str) -> Path:
    """Where a package whose models are used lies; it is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingPackage(
            f"the task {task!r} needs the models of {package.replace('_', '-')}, which is not installed. "
            "Try: pip install 'diffclone[tasks]'."
        )
    return Path(spec.origin).parent


def asset(package: str, task: str, inside: str) -> Path:
    """A model's file in another package."""
    path = package_folder(package, task) / inside
    if not path.exists():
        raise MissingPackage(
            f"the task {task!r} needs {path}, which is missing. Install {package.replace('_', '-')} again."
        )
    return path
