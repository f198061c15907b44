"""The plan of the study: which stacks are to be trained and which of their snapshots to be evaluated.

tuning     every configuration of a method, tuning seeds, part of the demonstrations, validation starts
fresh      the chosen configuration, and the untuned ones; fresh seeds, all demonstrations, evaluation starts
controls   variants of BC and DBC; fresh seeds, all demonstrations, evaluation starts

A Record that exists is not made again. A stage that needs a choice is planned once its tuning is complete.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.experiments.presets import PRESETS, QUICK_UPDATES, shorten_training
from diffclone.experiments.study import small
from diffclone.experiments.study.candidates import (
    CONTROLS,
    DEFAULT_METHODS,
    DISTURBED,
    FRESH_SEEDS,
    TUNED_METHODS,
    TUNING_SEEDS,
    UNTUNED,
    TunedMethod,
    build_method,
)
from diffclone.experiments.study.results import choose_candidate, list_candidates, study_records
from diffclone.experiments.task_settings import TASK_SETTINGS, TaskSetting
from diffclone.model import Method
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS
from diffclone.tasks.batch import Starts
from diffclone.training.members import replace_fields

Study = Literal["tuning", "training-length", "controls"]
STUDIES: tuple[Study, ...] = ("tuning", "training-length", "controls")
SETTINGS = (
    "fetch-pick-27",
    "fetch-pick-10",
    "ant-reach-20",
    "maze-25",
    "walker-1",
    "hand-rotate-8",
    "cheetah-1",
    "fetch-pick-68",
    "spiral-1",
)
CONTROL_SETTINGS = ("fetch-pick-27", "fetch-pick-10", "ant-reach-20", "hand-rotate-8")
"""Settings in which the expert is well above BC."""
DISTURBED_SETTINGS = ("ant-reach-20", "hand-rotate-8")
"""Those whose expert tolerates a disturbance. FetchPick's script drops the block if its fingers are disturbed."""
ROUNDS = (
    ("bc", "dbc-paper"),
    ("dbc-ours",),
    ("diffusion-policy", "ibc"),
    ("diffusion-velocity", "mip", "shortcut", "flow-matching", "bc-gmm"),
    ("bc-chunks", "dbc-paper-chunks", "dbc-ours-chunks"),
    ("diffusion-policy-chunks", "diffusion-velocity-chunks", "ibc-chunks"),
    ("mip-chunks", "shortcut-chunks", "flow-matching-chunks", "bc-gmm-chunks"),
)
"""Methods in the order of their importance: a round is done on all settings before the next one begins."""
HELD_OUT_EVERY = 6
"""Tuning holds out every sixth episode, if there are at least five."""
VALIDATION_EPISODES, LONG_VALIDATION_EPISODES = 24, 6
CURVE_EPISODES, LONG_CURVE_EPISODES = 30, 10
"""Episodes per fresh seed at snapshots other than the chosen one."""
LONG_SEEDS, LONG_EVALUATION_EPISODES = 10, 30
"""Fresh seeds, and episodes of each at the chosen snapshot, of tasks with long episodes."""
QUICK_SNAPSHOTS = (QUICK_UPDATES // 2, QUICK_UPDATES)


@final
@dataclass(frozen=True)
class StudyOptions:
    """What to run."""

    studies: tuple[Study, ...] = ("tuning",)
    settings: tuple[str, ...] = SETTINGS
    methods: tuple[str, ...] = DEFAULT_METHODS
    seeds: int | None = None
    """Fresh seeds; by default 16, and 10 for tasks with long episodes."""
    quick: bool = False
    """Two seeds, two configurations, two episodes and very little training, to check that everything works."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files of demonstrations by task, instead of the bundled ones."""
    small: bool = False
    """Few tries and small networks, for a machine without a GPU."""

    def find_method(self, key: str) -> TunedMethod:
        """Return a method with the values that it tries."""
        return small.shrink(key) if self.small else TUNED_METHODS[key]


@final
@dataclass(frozen=True, eq=False)
class Stage:
    """One stack to train, and the snapshots of it to evaluate."""

    study: Literal["tuning", "fresh", "controls"]
    setting: TaskSetting
    name: str
    """Name of the method in tables."""
    method: Method[Any]
    fields: Mapping[str, Any]
    """The configuration: values that are not the preset's and do not vary."""
    vary: Mapping[str, Sequence[float]]
    seeds: tuple[int, ...]
    snapshots: tuple[int, ...]
    """All snapshots of the training."""
    episodes: Mapping[int, int]
    """Episodes per member at each snapshot that is to be evaluated."""
    starts: Starts
    chosen: int | None = None
    """The snapshot that tuning chose."""
    acts_fast: bool = True
    quick: bool = False
    small: bool = False
    disturbance: float = 0.0
    """Noise on the actions that the expert executes: its demonstrations are then collected again."""

    @property
    def folder(self) -> str:
        """A readable name, which differs for trainings that differ in anything."""
        vary = {name: list(values) for name, values in self.vary.items()}
        identity = [to_dict(self.method), vary, list(self.seeds), list(self.snapshots), self.quick, self.disturbance]
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:8]
        words = "".join(letter if letter.isalnum() else " " for letter in self.name.lower()).split()
        return "-".join([self.setting.name, self.study, *words, digest])

    @property
    def members(self) -> int:
        """The number of members that are trained together."""
        count = len(self.seeds)
        for values in self.vary.values():
            count *= len(values)
        return count

    def demonstrations(self, files: Mapping[str, str]) -> tuple[Demonstrations, Demonstrations | None]:
        """Return the demonstrations to train on, and those held out from tuning."""
        demos = self.setting.load_demonstrations(dict(files) or None)
        if self.disturbance:
            demos = self.setting.collect_demonstrations(demos.num_episodes, self.disturbance)
        return split_episodes(demos) if self.study == "tuning" else (demos, None)


def split_episodes(demos: Demonstrations) -> tuple[Demonstrations, Demonstrations | None]:
    """Hold out every sixth episode; nothing if there are fewer than five."""
    count = demos.num_episodes
    if count < 5:
        return demos, None
    every = min(HELD_OUT_EVERY, count)
    held_out = list(range(every - 1, count, every))
    return demos.take([k for k in range(count) if k not in held_out]), demos.take(held_out)


def plan_study(options: StudyOptions, records: Iterable[Record]) -> list[Stage]:
    """Return the stages that can be run now and are not in the Records, the most important ones first."""
    for name in options.settings:
        TASK_SETTINGS[name]
    for name in options.methods:
        TUNED_METHODS[name]
    if options.seeds is not None and not 1 <= options.seeds <= len(FRESH_SEEDS):
        raise InvalidSettings(f"a study has 1 to {len(FRESH_SEEDS)} fresh seeds; {options.seeds} were requested.")
    if options.small and options.studies != ("tuning",):
        raise InvalidSettings(f"a small study is one of tuning; {', '.join(options.studies)} was requested.")
    records = [record for record in records if record.quick == options.quick and "study" in record.results]
    if any(record.results.get("small", False) != options.small for record in records):
        there, here = ("full", "small") if options.small else ("small", "full")
        raise InvalidSettings(f"the folder has Records of a {there} study; give another --out for a {here} one.")
    stages: list[Stage] = []
    for methods in ROUNDS:
        chosen = [key for key in methods if key in options.methods]
        for name in options.settings:
            stages += plan_setting(TASK_SETTINGS[name], chosen, options, records)
    return [stage for stage in (drop_finished(stage, records) for stage in stages) if stage.episodes]


def plan_setting(
    setting: TaskSetting, methods: Sequence[str], options: StudyOptions, records: Sequence[Record]
) -> list[Stage]:
    """Return the stages of some methods on one setting."""
    stages: list[Stage] = []
    studies = options.studies
    methods = [key for key in methods if f"{setting.task}/{TUNED_METHODS[key].preset}/brief" in PRESETS]
    if "tuning" in studies:
        stages += [stage for key in methods for stage in tuning_stages(setting, options.find_method(key), options)]
    for key in methods:
        fresh = fresh_stage(setting, options.find_method(key), options, records)
        stages += [fresh] if fresh and "tuning" in studies else []
    if "training-length" in studies:
        untuned = [UNTUNED[key] for key in methods if key in UNTUNED]
        stages += [make_stage("fresh", setting, method, {}, options) for method in untuned]
    if "controls" in studies and setting.name in CONTROL_SETTINGS:
        stages += control_stages(setting, methods, options)
    return stages


def tuning_stages(setting: TaskSetting, method: TunedMethod, options: StudyOptions) -> list[Stage]:
    """Return one stage per stack of the method's configurations."""
    return [make_stage("tuning", setting, method, own, options, method.vary) for own in method.stacks]


def fresh_stage(
    setting: TaskSetting, method: TunedMethod, options: StudyOptions, records: Sequence[Record]
) -> Stage | None:
    """Return the stage of the chosen configuration; None while its tuning is incomplete."""
    expected = [drop_finished(stage, records) for stage in tuning_stages(setting, method, options)]
    if any(stage.episodes for stage in expected):
        return None
    best = choose_candidate(list_candidates(records, setting.name, method.name))
    return make_stage("fresh", setting, method, dict(best.configuration), options, chosen=best.snapshot)


def control_stages(setting: TaskSetting, methods: Sequence[str], options: StudyOptions) -> list[Stage]:
    """Return the controls of one setting."""
    return [
        replace(
            make_stage("controls", setting, UNTUNED[control.method], control.fields, options, name=name),
            disturbance=control.disturbance,
        )
        for name, control in CONTROLS.items()
        if control.method in methods and (name != DISTURBED or setting.name in DISTURBED_SETTINGS)
    ]


def make_stage(
    study: Literal["tuning", "fresh", "controls"],
    setting: TaskSetting,
    method: TunedMethod,
    fields: Mapping[str, Any],
    options: StudyOptions,
    vary: Mapping[str, tuple[float, ...]] | None = None,
    name: str | None = None,
    chosen: int | None = None,
) -> Stage:
    """Return a stage with the seeds, the snapshots and the episodes of its study."""
    long, tuning = TASKS[setting.task].metric == "return", study == "tuning"
    snapshots = QUICK_SNAPSHOTS if options.quick else method.snapshots
    settings = build_method(setting.task, method.preset, snapshots, {**method.fields, **fields})
    fresh = FRESH_SEEDS[: options.seeds or (LONG_SEEDS if long else len(FRESH_SEEDS))]
    seeds, own = TUNING_SEEDS if tuning else fresh, dict(vary or {})
    if tuning:
        episodes = dict.fromkeys(snapshots, LONG_VALIDATION_EPISODES if long else VALIDATION_EPISODES)
    else:
        episodes = dict.fromkeys(snapshots, LONG_CURVE_EPISODES if long else CURVE_EPISODES)
        if chosen is not None and study == "fresh":
            episodes[chosen] = LONG_EVALUATION_EPISODES if long else setting.evaluation_episodes
    if options.small and tuning:
        seeds = seeds[: small.TUNING_SEEDS]
        count = small.LONG_VALIDATION_EPISODES if long else small.VALIDATION_EPISODES
        episodes = dict.fromkeys(snapshots, count)
    elif options.small and chosen is not None:
        seeds, snapshots = FRESH_SEEDS[: options.seeds or small.FRESH_SEEDS], (chosen,)
        episodes = {chosen: episodes[chosen]}
        settings = build_method(setting.task, method.preset, snapshots, {**method.fields, **fields})
    if options.quick:
        seeds, episodes = seeds[:2], dict.fromkeys(snapshots, 2)
        settings = build_quick(settings, fields)
        own = {field: values[: 2 if field == list(own)[-1] else 1] for field, values in own.items()}
    return Stage(
        study=study,
        setting=setting,
        name=name or method.name,
        method=settings,
        fields=fields,
        vary=own,
        seeds=seeds,
        snapshots=snapshots,
        episodes=episodes,
        starts="validation" if tuning else "evaluation",
        chosen=chosen,
        acts_fast=method.acts_fast,
        quick=options.quick,
        small=options.small,
    )


def build_quick(method: Method[Any], fields: Mapping[str, Any]) -> Method[Any]:
    """Return the method with very few updates; an untrained guide stays untrained."""
    kept = {name: value for name, value in fields.items() if name.startswith("guide.")}
    return replace_fields(shorten_training(method), kept)


def drop_finished(stage: Stage, records: Sequence[Record]) -> Stage:
    """Return the stage without the snapshots that have a Record with all seeds and enough episodes."""
    found = study_records(records, stage.study, stage.setting.name, stage.name, starts=stage.starts)
    done: set[int] = set()
    for record in found:
        results, update = record.results, int(record.results["snapshot"])
        seeds = {int(member["seed"]) for member in record.members}
        same = results["fields"] == json.loads(json.dumps(stage.fields)) and len(record.members) >= stage.members
        enough = seeds >= set(stage.seeds) and results["episodes"] >= stage.episodes.get(update, 0)
        if same and enough:
            done.add(update)
    return replace(stage, episodes={update: n for update, n in stage.episodes.items() if update not in done})
