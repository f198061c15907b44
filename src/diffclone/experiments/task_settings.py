"""Named settings of the tasks: which demonstrations a policy learns from and which environment it is evaluated in.

With all their demonstrations most bundled tasks have no headroom: BC already scores like the expert, so that no method
can be better. Each task has a setting in which the expert is well above BC and BC is well above zero:

    headroom = (expert − BC) / expert
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from diffclone.errors import InvalidSettings
from diffclone.registry import Registry
from diffclone.tasks import BUNDLED, EXTERNAL, TASKS, Task
from diffclone.tasks.experts import Expert, collect

if TYPE_CHECKING:
    import diffclone.data.demonstrations

ASSETS = Path(str(resources.files("diffclone.assets")))


@final
@dataclass(frozen=True)
class TaskSetting:
    """A task with a choice of demonstrations and of options of its environment."""

    name: str
    """Name in Records and on the command line, e.g. "maze-25"."""
    task: str
    """Name of the task."""
    about: str
    """What the setting is, in one line."""
    demonstrations: str | None = None
    """Name of a bundled file of demonstrations, without its ending; None: those of the task."""
    episodes: int | None = None
    """Number of episodes, from the first; None: all of them, or `fraction`."""
    fraction: float | None = None
    """Fraction of episodes, drawn at random with seed 0."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the environment in which policies are evaluated."""
    evaluation_episodes: int = 100
    """Number of evaluation starts for each seed."""
    expert: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the expert that demonstrates."""
    expert_weights: str | None = None
    """Name of another bundled expert that demonstrates, without its ending."""

    def __post_init__(self) -> None:
        if self.episodes is not None and self.fraction is not None:
            raise InvalidSettings(f"the setting {self.name!r} has both episodes and a fraction; it can have one.")

    def load_demonstrations(
        self, files: Mapping[str, str] | None = None
    ) -> "diffclone.data.demonstrations.Demonstrations":
        """Return the demonstrations; they are the same at each call.

        Args:
            files: files to read in place of the bundled demonstrations, by the name of the setting or of the task.
        """
        from diffclone.data import Demonstrations

        files = files or {}
        file = files.get(self.name) or files.get(self.task)
        if file is None and self.demonstrations is not None:
            file = ASSETS / f"{self.demonstrations}.npz"
        demos = TASKS[self.task].demonstrations() if file is None else Demonstrations.load(file)
        if self.fraction is not None:
            return demos.subsample(self.fraction)
        if self.episodes is None:
            return demos
        if self.episodes > demos.num_episodes:
            raise InvalidSettings(
                f"the setting {self.name!r} needs {self.episodes} episodes; {file or 'the bundled file'} has "
                f"{demos.num_episodes}."
            )
        return demos.take(range(self.episodes))

    def collect_demonstrations(
        self, episodes: int, disturbance: float
    ) -> "diffclone.data.demonstrations.Demonstrations":
        """Return episodes of the setting's expert with noise on the executed actions, the same at each call."""
        expert = self.make_expert()
        env = TASKS[self.task].make(1, **expert.env_options)
        try:
            return collect(env, expert, episodes, disturbance=disturbance)
        finally:
            env.close()

    def make_task_options(self) -> dict[str, Any]:
        """Return the options of the environment, checked; pass them to `evaluate`."""
        return TASKS[self.task].check_options(self.options)

    def make_expert(self) -> Expert:
        """Return the expert that gave the demonstrations."""
        if self.expert_weights is None:
            return TASKS[self.task].expert(**self.expert)
        return TASKS[self.task].expert(**self.expert, weights=ASSETS / "experts" / f"{self.expert_weights}.safetensors")


def headroom(expert: float, bc: float) -> float:
    """Return the share of the expert's score that BC does not reach: 0 if BC scores like the expert."""
    if not expert > 0:
        raise InvalidSettings(f"headroom needs an expert with a score above 0; it is {expert:g}.")
    return (expert - bc) / expert


def plain_setting(task: Task) -> TaskSetting:
    """Return the setting of a task with all its demonstrations and its own environment."""
    episodes = 30 if task.name == "car-racing" else 100
    return TaskSetting(
        task.name, task.name, "All demonstrations of the task, and its own starts.", evaluation_episodes=episodes
    )


WITH_HEADROOM = (
    TaskSetting("maze-25", "maze", "A quarter of the bundled episodes.", fraction=0.25),
    TaskSetting(
        "fetch-pick-27",
        "fetch-pick",
        "27 episodes of the script without action noise, as in the released code.",
        demonstrations="fetch-pick-noiseless",
        episodes=27,
        expert={"noise": 0.0},
    ),
    TaskSetting(
        "fetch-pick-10",
        "fetch-pick",
        "The first 10 episodes of fetch-pick-27.",
        demonstrations="fetch-pick-noiseless",
        episodes=10,
        expert={"noise": 0.0},
    ),
    TaskSetting("fetch-pick-68", "fetch-pick", "68 of the bundled episodes, which have action noise.", episodes=68),
    TaskSetting(
        "ant-reach-20",
        "ant-reach",
        "20 of the bundled episodes, which start without noise; the starts of the evaluation have much.",
        episodes=20,
        options={"start_noise": 0.07},
    ),
    TaskSetting("cheetah-1", "cheetah", "One of the bundled episodes.", episodes=1),
    TaskSetting("walker-1", "walker", "One of the bundled episodes.", episodes=1),
    TaskSetting(
        "hand-rotate-8", "hand-rotate", "8 of the bundled episodes, of an expert that rarely fails.", episodes=8
    ),
    TaskSetting(
        "hand-rotate-weak",
        "hand-rotate",
        "515 successful episodes of an expert from early in its training, which succeeds as often as the paper's.",
        demonstrations="hand-rotate-weak",
        expert={"noise": 0.25},
        expert_weights="hand-rotate-weak",
    ),
    TaskSetting(
        "spiral-1",
        "spiral",
        "One demonstration; policies start around its first position.",
        episodes=1,
        options={"start_noise": 0.05},
    ),
)
EXTERNAL_SETTINGS = tuple(
    TaskSetting(f"{task.name}-20", task.name, "20 of the 100 collected episodes.", episodes=20) for task in EXTERNAL
)
"""Tasks of other packages with few demonstrations."""
TASK_SETTINGS: Registry[TaskSetting] = Registry(
    "task setting",
    {
        setting.name: setting
        for setting in (*map(plain_setting, (*BUNDLED, *EXTERNAL)), *WITH_HEADROOM, *EXTERNAL_SETTINGS)
    },
    instance_of=TaskSetting,
)


def find_setting(name: str) -> TaskSetting:
    """Return the setting of this name, or the plain setting of a task that another package has registered."""
    return TASK_SETTINGS[name] if name in TASK_SETTINGS else plain_setting(TASKS[name])
