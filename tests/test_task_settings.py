import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings, UnknownName
from diffclone.experiments.task_settings import TASK_SETTINGS, WITH_HEADROOM, TaskSetting, headroom
from diffclone.tasks import BUNDLED, TASKS

HERE = [setting for setting in TASK_SETTINGS.values() if not TASKS[setting.task].collected_on_first_use]
every_setting = pytest.mark.parametrize("setting", HERE, ids=lambda setting: setting.name)


@every_setting
def test_every_setting_loads_the_same_demonstrations_each_time(setting: TaskSetting) -> None:
    demos, task = setting.load_demonstrations(), TASKS[setting.task]
    assert (demos.obs.shape[1], demos.act.shape[1]) == (task.obs_size, task.act_size)
    assert demos.fingerprint == setting.load_demonstrations().fingerprint
    if setting.episodes is not None:
        assert demos.num_episodes == setting.episodes
    assert setting.about.endswith(".")


@every_setting
def test_the_expert_of_every_setting_can_be_made(setting: TaskSetting) -> None:
    assert setting.make_expert().horizon == TASKS[setting.task].expert().horizon


@pytest.mark.parametrize("setting", [setting for setting in WITH_HEADROOM if setting.options], ids=lambda s: s.name)
def test_options_change_the_environment(setting: TaskSetting) -> None:
    options = setting.make_task_options()
    env = TASKS[setting.task].make(1, **options)
    assert all(getattr(env, name) == value for name, value in options.items())
    env.close()


def test_every_task_has_its_own_name_as_a_setting_and_one_with_headroom() -> None:
    for task in BUNDLED:
        assert TASK_SETTINGS[task.name].load_demonstrations().fingerprint == task.demonstrations().fingerprint
    names = {setting.task for setting in WITH_HEADROOM}
    assert names == {task.name for task in BUNDLED} - {"car-racing"}


def test_a_setting_takes_the_first_episodes_or_a_random_fraction() -> None:
    walker, maze = TASKS["walker"].demonstrations(), TASKS["maze"].demonstrations()
    assert TASK_SETTINGS["walker-1"].load_demonstrations().fingerprint == walker.take([0]).fingerprint
    assert TASK_SETTINGS["maze-25"].load_demonstrations().fingerprint == maze.subsample(0.25).fingerprint


def test_demonstrations_without_noise_end_where_the_script_ends() -> None:
    demos = TASK_SETTINGS["fetch-pick-27"].load_demonstrations()
    assert "noise=0" in demos.meta["command"]
    assert demos.num_episodes == 27
    assert demos.lengths.max() < TASK_SETTINGS["fetch-pick-68"].load_demonstrations().lengths.max()


def test_files_replace_the_bundled_demonstrations(tmp_path: Path) -> None:
    demos = TASKS["spiral"].demonstrations().take([3, 4])
    demos.save(tmp_path / "mine.npz")
    setting = TASK_SETTINGS["spiral-1"]
    for name in ("spiral", "spiral-1"):
        found = setting.load_demonstrations({name: str(tmp_path / "mine.npz")})
        assert found.fingerprint == demos.take([0]).fingerprint
    two = Demonstrations.load(tmp_path / "mine.npz")
    assert TASK_SETTINGS["spiral"].load_demonstrations({"spiral": str(tmp_path / "mine.npz")}).num_episodes == 2
    with pytest.raises(InvalidSettings, match=r"'few' needs 3 episodes; .*mine\.npz has 2"):
        TaskSetting("few", "spiral", "Few.", episodes=3).load_demonstrations({"few": str(tmp_path / "mine.npz")})
    assert np.array_equal(two.obs, demos.obs)


def test_mistakes_are_one_line() -> None:
    with pytest.raises(UnknownName, match="unknown task setting 'maze-20'; did you mean 'maze-25'"):
        TASK_SETTINGS["maze-20"]
    with pytest.raises(InvalidSettings, match="has both episodes and a fraction"):
        TaskSetting("both", "maze", "Both.", episodes=1, fraction=0.5)
    with pytest.raises(InvalidSettings, match="has no option 'start_nose'"):
        TaskSetting("typo", "maze", "Typo.", options={"start_nose": 1.0}).make_task_options()


def test_headroom_is_the_share_that_bc_does_not_reach() -> None:
    assert headroom(0.8, 0.6) == pytest.approx(0.25)
    assert headroom(5000.0, 5000.0) == 0
    assert headroom(0.8, 1.0) < 0
    with pytest.raises(InvalidSettings, match="above 0"):
        headroom(0.0, 0.1)


def test_the_command_lists_the_settings(diffclone: Any) -> None:
    rows = {row["task"]: row for row in json.loads(diffclone("tasks", "--json").out)}
    assert [setting["setting"] for setting in rows["fetch-pick"]["settings"]] == [
        *("fetch-pick-27", "fetch-pick-10", "fetch-pick-68")
    ]
    assert rows["spiral"]["settings"][0]["options"] == "start_noise=0.05"
