"""MuJoCo for many rows at once: the states are rows of one array, advanced by MuJoCo's own threads.

Nothing but the state is kept between steps (no warm start), so a row's future depends only on its state and its
controls. Sensors are those at the start of the last substep, as in MuJoCo's own data after a step.
"""

import importlib
import importlib.util
import os
import sys
from ctypes.util import find_library
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np

from diffclone.errors import CannotRender, MissingPackage, install_command
from diffclone.tasks.batch import BatchEnv, Doubles, Image, Rows

IMAGE_HEIGHT, IMAGE_WIDTH = 360, 480


@cache
def load_mujoco() -> Any:
    """Import MuJoCo and, where there is no display, choose an off-screen renderer.

    MuJoCo reads MUJOCO_GL when it is imported, and the import fails if that library is not installed.
    """
    if has_no_display() and "MUJOCO_GL" not in os.environ:
        libraries = ("EGL", "OSMesa") if Path("/dev/dri").exists() else ("OSMesa", "EGL")
        if found := next((name for name in libraries if find_library(name)), None):
            os.environ["MUJOCO_GL"] = found.lower()
    try:
        return importlib.import_module("mujoco")
    except (AttributeError, OSError, RuntimeError) as error:
        raise rendering_error(type(error).__name__) from None


def has_no_display() -> bool:
    """Return whether no window can be opened."""
    return sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def rendering_error(reason: str) -> CannotRender:
    """Return the one error for all the ways in which OpenGL can be missing."""
    return CannotRender(
        f"MuJoCo cannot render here (MUJOCO_GL is {os.environ.get('MUJOCO_GL', 'not set')}; {reason}). "
        "Without a display it needs OSMesa (on Debian: apt-get install libosmesa6, then MUJOCO_GL=osmesa) or EGL "
        "(a GPU's, or apt-get install libegl1, then MUJOCO_GL=egl); MUJOCO_GL=disable turns rendering off."
    )


def count_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@final
@dataclass(frozen=True)
class Camera:
    """A camera that looks at a point from a distance."""

    lookat: tuple[float, float, float]
    distance: float
    azimuth: float = 90.0
    elevation: float = -45.0
    follow: str | None = None
    """A body to look at instead of the point."""


@final
class Simulation:
    """`count` states of one model: time, then positions, then velocities."""

    def __init__(self, xml: str, count: int, *, rows_per_thread: int = 16):
        """Compile `xml`. One more thread is used for every `rows_per_thread` rows, up to the number of cores."""
        mujoco = self._mujoco = load_mujoco()
        model = self.model = mujoco.MjModel.from_xml_string(xml)
        self.states = np.zeros((count, mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
        self.positions = self.states[:, 1 : 1 + model.nq]
        self.velocities = self.states[:, 1 + model.nq : 1 + model.nq + model.nv]
        self.sensors = np.zeros((count, model.nsensordata))
        self._scratch = [mujoco.MjData(model) for _ in range(min(count_cores(), max(1, count // rows_per_thread)))]
        rollout: Any = importlib.import_module("mujoco.rollout")
        self._pool = rollout.Rollout(nthread=len(self._scratch) if len(self._scratch) > 1 else 0)
        self._renderer: Any = None

    def advance(self, rows: Rows, control: Doubles, substeps: int) -> None:
        """Hold a control, (rows, controls), for some substeps.

        The control is that of the actuators. Positions and then quaternions of the mocap bodies may follow; without
        them those bodies stay where the model has them.
        """
        if not len(rows):
            return  # MuJoCo crashes
        kinds = self._mujoco.mjtState
        spec = kinds.mjSTATE_CTRL.value
        if control.shape[1] > self.model.nu:
            spec |= kinds.mjSTATE_MOCAP_POS.value | kinds.mjSTATE_MOCAP_QUAT.value
        held = np.repeat(control[:, None, :], substeps, axis=1)
        after, sensors = self._pool.rollout(self.model, self._scratch, self.states[rows], held, control_spec=spec)
        self.states[rows] = after[:, -1]
        if sensors is not None and self.model.nsensordata:
            self.sensors[rows] = sensors[:, -1]

    def update_sensors(self, rows: Rows) -> None:
        """Compute the sensors of states that were set and not stepped to."""
        data = self._scratch[0]
        for row in rows:
            self._set(data, int(row))
            self._mujoco.mj_forward(self.model, data)
            self.sensors[row] = data.sensordata

    def render(self, row: int, camera: Camera, mocap: Doubles | None = None) -> Image:
        """Return an image of a row; `mocap` are poses (bodies, 7) of the mocap bodies."""
        mujoco = self._mujoco
        data = mujoco.MjData(self.model)
        self._set(data, row)
        if mocap is not None:
            data.mocap_pos[:], data.mocap_quat[:] = mocap[:, :3], mocap[:, 3:]
        mujoco.mj_forward(self.model, data)
        view = mujoco.MjvCamera()
        view.lookat[:] = camera.lookat if camera.follow is None else data.body(camera.follow).xpos
        view.distance, view.azimuth, view.elevation = camera.distance, camera.azimuth, camera.elevation
        if self._renderer is None:
            self._renderer = make_renderer(self.model)
        self._renderer.update_scene(data, view)
        return self._renderer.render()

    def close(self) -> None:
        """End the threads and the renderer."""
        self._pool.close()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _set(self, data: Any, row: int) -> None:
        self._mujoco.mj_resetData(self.model, data)
        kind = self._mujoco.mjtState.mjSTATE_FULLPHYSICS
        self._mujoco.mj_setState(self.model, data, self.states[row], kind)


def make_renderer(model: Any, height: int = IMAGE_HEIGHT, width: int = IMAGE_WIDTH) -> Any:
    """Return MuJoCo's renderer of a model, or raise `CannotRender`."""
    mujoco = load_mujoco()
    context = getattr(mujoco, "GLContext", None)
    if context is None or (has_no_display() and context.__module__.startswith("mujoco.glfw")):
        raise rendering_error("no display")  # GLFW ends the whole process if it cannot open a window
    try:
        return mujoco.Renderer(model, height, width)
    except Exception as error:
        raise rendering_error(type(error).__name__) from None


class MujocoBatch(BatchEnv):
    """A batch whose rows are the states of a simulation. Actions are in [−1, 1]."""

    def __init__(self, xml: str, count: int, act_size: int, *, rows_per_thread: int = 16):
        self.count = count
        self.act_low, self.act_high = -np.ones(act_size), np.ones(act_size)
        self.simulation = Simulation(xml, count, rows_per_thread=rows_per_thread)
        self.solved = np.zeros(count, dtype=np.bool_)

    def close(self) -> None:
        """End the threads and the renderer."""
        self.simulation.close()


def find_asset(package: str, task: str, path: str) -> Path:
    """Return a model file of another package, without importing the package."""
    spec, distribution = importlib.util.find_spec(package), package.replace("_", "-")
    if spec is None or spec.origin is None:
        raise MissingPackage(
            f"the task {task!r} needs the models of {distribution}, which is not installed. "
            f"Try: {install_command('tasks')}."
        )
    found = Path(spec.origin).parent / path
    if not found.exists():
        raise MissingPackage(f"the task {task!r} needs {found}, which is missing. Install {distribution} again.")
    return found
