import importlib
import linecache
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Policy, Training, fit
from diffclone.errors import DiffcloneError, DiffcloneWarning, InvalidFile, InvalidSettings
from diffclone.fit import Diverged, FitOptions, fit_with_options
from diffclone.model import Dims, Method
from diffclone.nn import MLP
from diffclone.rng import Rng
from diffclone.training import Progress
from diffclone.training.learner import Learner
from diffclone.training.members import Stack, from_matrix, to_matrix
from diffclone.training.runs import train_run
from diffclone.training.step import Dataset, Updates

X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
DEMOS = Demonstrations.from_arrays(X, np.sin(3 * X[:, :1]), episode_ends=[100, 200])
OTHER = Demonstrations.from_arrays(X, np.zeros((200, 3)), episode_ends=[200])
OTHERS = Demonstrations.from_arrays(X, np.cos(3 * X[:, :1]), episode_ends=[100, 200])

SHORT = Training(updates=150, batch=16, lr=1e-3)
NETWORK = Network(width=16, depth=2)
CLONING = BC(training=SHORT, network=NETWORK)
GUIDED = DBC(training=SHORT, network=NETWORK, guide=DiffusionGuide(training=SHORT, width=16, steps=50))


class Stopped(Exception):
    """Stands for a user's Ctrl-C."""


def weights(method: Method[Any], *, progress: Callable[[Progress], None] = lambda now: None, **options: Any) -> Tensor:
    net = fit_with_options(method, DEMOS, FitOptions(seeds=(0, 1), device="cpu", **options), progress).trained.net
    return torch.cat([p.detach().flatten(1) for p in net.parameters()], 1)


def stop_at(stage: str, update: int) -> Callable[[Progress], None]:
    def progress(progress: Progress) -> None:
        if progress.stage == stage and progress.update >= update:
            raise Stopped

    return progress


@pytest.mark.parametrize(
    ("method", "stage"),
    [
        (CLONING, "policy"),
        (replace(CLONING, training=replace(SHORT, ema=0.95, decay="constant", clip=None)), "policy"),
        (GUIDED, "guide"),
        (GUIDED, "policy"),
    ],
    ids=["bc", "bc with an average", "dbc in the guide", "dbc in the policy"],
)
def test_interrupted_training_resumes_bit_for_bit(method: Method[Any], stage: str, tmp_path: Path) -> None:
    seen: list[Progress] = []
    for update in (32, 96):
        with pytest.raises(Stopped):
            weights(method, checkpoints=tmp_path, progress=stop_at(stage, update))
    resumed = weights(method, checkpoints=tmp_path, progress=seen.append)
    assert seen[0].stage == stage
    assert seen[0].update > 96
    assert torch.equal(resumed, weights(method))


def test_finished_training_is_not_repeated(tmp_path: Path) -> None:
    seen: list[Progress] = []
    first = weights(GUIDED, checkpoints=tmp_path)
    again = weights(GUIDED, checkpoints=tmp_path, progress=seen.append)
    assert seen == []
    assert torch.equal(first, again)


def test_a_stage_that_ends_early_is_continued_where_it_ended(tmp_path: Path) -> None:
    seen: list[Progress] = []

    def enough(now: Progress) -> bool:
        return now.update >= 64

    weights(CLONING, checkpoints=tmp_path, enough=enough)
    continued = weights(CLONING, checkpoints=tmp_path, progress=seen.append)
    assert seen[0].update > 64
    assert torch.equal(continued, weights(CLONING))


HOLD = """
import sys, time
from pathlib import Path
from diffclone.training.lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no lock")
def test_a_folder_of_checkpoints_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"locked\n"
        message = rf"process {first.pid} is training in .* Wait for it, or choose another folder of checkpoints\.$"
        with pytest.raises(InvalidFile, match=message):
            fit(CLONING, DEMOS, device="cpu", checkpoints=tmp_path)
        first.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]
    fit(BC(training=BRIEF, network=NETWORK), DEMOS, device="cpu", checkpoints=tmp_path)
    train_run(tmp_path / "run", CLONING, DEMOS, FitOptions(device="cpu"))
    assert not (tmp_path / "run" / "checkpoints" / "run.lock").exists(), "the lock of the run is enough"


def test_an_interrupt_inside_an_update_leaves_the_checkpoint_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, calls = Learner.step, list[int]()

    def interrupted_step(self: Learner, gradients: list[Tensor], index: int) -> None:
        step(self, gradients, index)
        calls.append(1)
        if len(calls) == 50:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", interrupted_step)
        with pytest.raises(KeyboardInterrupt):
            weights(CLONING, checkpoints=tmp_path)
    assert torch.equal(weights(CLONING, checkpoints=tmp_path), weights(CLONING))


@pytest.mark.parametrize(
    ("method", "demos", "seeds", "message"),
    [
        (
            replace(CLONING, training=replace(SHORT, lr=0.5)),
            DEMOS,
            (0, 1),
            r"method\.training\.lr: 0\.001 != 0\.5",
        ),
        (CLONING, DEMOS, (0, 2), r"seeds: \[0, 1\] != \[0, 2\]"),
        (CLONING, OTHERS, (0, 1), rf"demonstrations: {DEMOS.fingerprint} != {OTHERS.fingerprint}"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    method: Method[Any], demos: Demonstrations, seeds: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    weights(CLONING, checkpoints=tmp_path)
    with pytest.raises(InvalidFile, match=message):
        fit(method, demos, seeds=seeds, device="cpu", checkpoints=tmp_path)


OWN_GUIDE = """
from dataclasses import dataclass
from diffclone import Guide, Training
from diffclone.model import Losses
from diffclone.nn import Linear

@dataclass(frozen=True)
class Own(Guide):
    training: Training = Training(updates=20, batch=16)

    def init(self, dims, rng):
        return Linear(dims.obs, dims.act, rng)

    def loss(self, weights, batch, rng, parts):
        return Losses(factor() * (weights(batch.obs) - batch.act).square().mean((-2, -1)))

    def draw(self, batch, dims, rng):
        return None

    def cost(self, weights, obs, act, draw):
        return (weights(obs) - act).square().mean(-1)

def factor():
    return 1.0
"""


def test_a_guide_whose_code_changed_is_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path, found = tmp_path / "own_guide.py", list[set[str]]()
    for source in (OWN_GUIDE, OWN_GUIDE, OWN_GUIDE.replace("return 1.0", "return 2.0")):
        path.write_text(source)
        linecache.clearcache()
        sys.modules.pop("own_guide", None)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        guide = importlib.import_module("own_guide").Own()
        found.append(stages(replace(BRIEFLY, guide=guide), tmp_path / "cache"))
    assert found == [{"guide", "policy"}, {"policy"}, {"guide", "policy"}]


def test_a_guide_of_another_version_is_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages(BRIEFLY, tmp_path)
    monkeypatch.setattr("diffclone.training.checkpoint.versions", lambda: {"diffclone": "9.9.9"})
    assert stages(BRIEFLY, tmp_path) == {"guide", "policy"}


BRIEF = replace(SHORT, updates=20)
BRIEFLY = replace(GUIDED, training=BRIEF, guide=replace(GUIDED.guide, training=BRIEF))


def stages(method: Method[Any], cache: Path, seeds: tuple[int, ...] = (0,)) -> set[str]:
    seen: list[Progress] = []
    fit(method, DEMOS, seeds=seeds, device="cpu", cache=cache, progress=seen.append)
    return {progress.stage for progress in seen}


def test_a_guide_is_trained_once(tmp_path: Path) -> None:
    assert stages(BRIEFLY, tmp_path) == {"guide", "policy"}
    assert stages(BRIEFLY, tmp_path) == {"policy"}
    # Settings of the policy, and settings that only the cost depends on, do not change the guide's weights.
    assert stages(replace(BRIEFLY, coefficient=3.0), tmp_path) == {"policy"}
    assert stages(replace(BRIEFLY, guide=replace(BRIEFLY.guide, draws=3, t_high=20)), tmp_path) == {"policy"}
    assert len(list(tmp_path.iterdir())) == 1
    assert stages(replace(BRIEFLY, guide=replace(BRIEFLY.guide, width=8)), tmp_path) == {"guide", "policy"}
    assert stages(BRIEFLY, tmp_path, seeds=(0, 1)) == {"guide", "policy"}
    assert len(list(tmp_path.iterdir())) == 3


def test_a_cache_that_cannot_be_written_does_not_end_a_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(DiffcloneWarning, match=r"file.*Set DIFFCLONE_CACHE to another folder, or use --no-cache\."):
        found = weights(BRIEFLY, cache=tmp_path / "file" / "guides")
    assert torch.equal(found, weights(BRIEFLY))


def test_a_cached_guide_changes_no_bit(tmp_path: Path) -> None:
    fresh = weights(BRIEFLY, cache=tmp_path)
    assert torch.equal(weights(BRIEFLY, cache=tmp_path), fresh)
    assert torch.equal(weights(BRIEFLY), fresh)


OWN_METHOD = """
from dataclasses import dataclass
from diffclone import DBC

@dataclass(frozen=True)
class Scaled(DBC):
    scale: float = 1.0

    def part_obs(self, name, obs, parts):
        return self.scale * obs
"""


def test_a_guide_of_other_observations_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_method.py").write_text(OWN_METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    scaled = importlib.import_module("own_method").Scaled
    first, other = (scaled(training=BRIEF, network=NETWORK, guide=BRIEFLY.guide, scale=scale) for scale in (1.0, 2.0))
    found = [stages(method, tmp_path / "cache") for method in (first, first, other, other)]
    assert found == [{"guide", "policy"}, {"policy"}, {"guide", "policy"}, {"policy"}]


def test_a_guide_of_other_demonstrations_is_not_used(tmp_path: Path) -> None:
    stages(BRIEFLY, tmp_path)
    seen: list[Progress] = []
    fit(BRIEFLY, OTHERS, device="cpu", cache=tmp_path, progress=seen.append)
    assert seen[0].stage == "guide"


def test_a_guide_that_diverged_ends_the_training_and_is_not_kept(tmp_path: Path) -> None:
    wild = replace(BRIEFLY, guide=replace(BRIEFLY.guide, training=replace(BRIEF, lr=1e30, clip=None)))
    seen: list[Progress] = []
    with pytest.raises(Diverged, match=r"the guide diverged: no member .* Try a smaller guide\.training\.lr\."):
        weights(wild, cache=tmp_path / "cache", progress=seen.append)
    assert {now.stage for now in seen} == {"guide"}
    assert not (tmp_path / "cache").exists()


def make_learner(training: Training, updates: int = 10) -> Learner:
    model = BC(training=training, network=NETWORK)
    return Learner(model, model.init(Dims(2, 1), Rng([0, 1])["init"]), updates)


def test_gradients_are_clipped_per_member() -> None:
    free, clipped = make_learner(replace(SHORT, clip=None)), make_learner(replace(SHORT, clip=0.5))
    obs = torch.ones(2, 3, 2)

    def gradient(learner: Learner, scales: list[float]) -> Tensor:
        total = learner.net(obs).square().mean((-2, -1)) * torch.tensor(scales)
        return learner.clip_gradients(learner.gradients(total, keep_graph=False)).clone()

    huge, usual = gradient(clipped, [1e8, 1e-3]), gradient(clipped, [1e-3, 1e-3])
    assert huge[0].norm().item() == pytest.approx(0.5, rel=1e-4)
    assert torch.equal(huge[1], usual[1])
    assert torch.equal(usual, gradient(free, [1e-3, 1e-3]))
    # Clipping shortens a gradient and does not turn it.
    assert torch.cosine_similarity(huge[0], usual[0], 0).item() == pytest.approx(1, abs=1e-5)


def test_the_first_step_of_adam_is_the_learning_rate() -> None:
    learner = make_learner(replace(SHORT, lr=0.01, eps=1e-12))
    before, gradient = learner.matrix.clone(), torch.randn(learner.matrix.shape)
    learner.plain_step([gradient], torch.tensor(0.01))
    assert torch.allclose(before - learner.matrix, 0.01 * gradient.sign(), atol=1e-6)


@pytest.mark.parametrize(
    ("decay", "last"), [("linear", 1e-3 * (1 - 9 / 10)), ("exponential", 1e-3 * 0.01**0.9), ("constant", 1e-3)]
)
def test_the_learning_rate_of_the_last_update(decay: Any, last: float) -> None:
    learner, rng = make_learner(replace(SHORT, decay=decay)), Rng([0, 1], path="policy")
    updates = Updates(learner, {}, {}, Dataset(torch.ones(5, 2), torch.ones(5, 1)), rng)
    updates.run(1)
    assert learner.learning_rates.tolist() == pytest.approx([1e-3])
    updates.run(9)
    assert learner.learning_rates[-1].item() == pytest.approx(last)
    assert int(updates.done) == 10


@pytest.mark.parametrize("remains", [0.01, 0.25, 1.0])
def test_an_exponential_decay_has_a_constant_factor_and_ends_at_remains(remains: float) -> None:
    learner = make_learner(replace(SHORT, decay="exponential", remains=remains))
    learner.set_learning_rates(torch.tensor(0), 11)
    rates = learner.learning_rates.tolist()
    assert rates[0] == pytest.approx(1e-3)
    assert rates[5] == pytest.approx(1e-3 * remains**0.5)
    assert rates[10] == pytest.approx(1e-3 * remains)  # which the update after the last one would have
    assert [b / a for a, b in pairwise(rates)] == pytest.approx([remains**0.1] * 10, rel=1e-4)


@pytest.mark.parametrize("remains", [0.0, -0.1, 1.1, float("nan")])
def test_an_invalid_decay_is_refused(remains: float) -> None:
    with pytest.raises(InvalidSettings, match="remains must be above 0 and at most 1"):
        Training(decay="exponential", remains=remains)


def test_the_average_of_three_updates_by_hand() -> None:
    learner = make_learner(replace(SHORT, ema=0.22, decay="constant"))
    by_hand, start = learner.matrix.clone(), learner.matrix.clone()
    learner.set_learning_rates(torch.tensor(0), 3)
    for index, decay in enumerate((2 / 11, 0.22, 0.22)):  # the second would be 3 / 12
        learner.step([torch.ones_like(learner.matrix)], index)
        by_hand = decay * by_hand + (1 - decay) * learner.matrix
    raw, average = learner.matrix, learner.result
    assert torch.allclose(average, by_hand, atol=1e-7)
    # The weights fall steadily, so their average lags behind them.
    assert torch.all((raw < average) & (average < start))


def test_an_average_does_not_stay_at_the_initial_weights() -> None:
    training = replace(SHORT, updates=300, lr=1e-2)
    averaged, plain, start = (
        weights(replace(CLONING, training=replace(training, **changes)))
        for changes in ({"ema": 0.9999}, {}, {"updates": 1})
    )
    moved = (plain - start).norm()
    assert (averaged - start).norm() > 0.8 * moved  # without a warm-up 3 % of the way
    assert (averaged - plain).norm() < 0.5 * moved


def test_a_result_with_an_average_is_not_the_last_weights() -> None:
    averaged = weights(replace(CLONING, training=replace(SHORT, ema=0.99)))
    assert not torch.allclose(averaged, weights(CLONING), atol=1e-3)


def test_progress_counts_up_with_one_loss_per_member() -> None:
    seen: list[Progress] = []
    fit(GUIDED, DEMOS, seeds=(0, 1), vary={"coefficient": [1.0, 2.0, 3.0]}, device="cpu", progress=seen.append)
    for stage, members in (("guide", 2), ("policy", 6)):
        updates = [progress.update for progress in seen if progress.stage == stage]
        assert updates == [32, 64, 96, 128, 150]
        losses = [value for p in seen if p.stage == stage for value in p.losses.values()]
        assert {value.shape for value in losses} == {(members,)}
    assert {progress.updates for progress in seen} == {150}
    assert [progress.stage for progress in seen] == ["guide"] * 5 + ["policy"] * 5


def test_reported_losses_are_means_since_the_last_report() -> None:
    learner, rng = make_learner(replace(SHORT, lr=1e-30)), Rng([0, 1], path="policy")
    updates = Updates(learner, {}, {}, Dataset(torch.ones(5, 2), torch.ones(5, 1)), rng)
    loss = (learner.net(torch.ones(2, 1, 2)) - 1).square().mean((-2, -1)).double()
    for count in (3, 40):
        assert torch.allclose(updates.run(count)["loss"], loss, rtol=1e-5)


@pytest.mark.parametrize(
    ("seeds", "vary", "message"),
    [
        ((0, 0), None, r"seeds must be different whole numbers .*, such as \[0, 1, 2\], .*; they are \(0, 0\)"),
        ((), None, "at least 1; they are \\(\\)"),
        (0, None, "at least 1; they are 0"),
        (-1, None, "they are -1"),
        (10**12, None, "at most 100000 members; these would be 1000000000000"),
        (None, None, "they are None"),
        ([1.5], None, "they are \\[1.5\\]"),
        ([-1], None, "they are \\[-1\\]"),
        ("12", None, "they are 12"),
        (iter([1, 2]), None, "they are <list_iterator"),
        ((0,), 3, "vary must be a dict such as .*; it is 3"),
        ((0,), {"gate": [1.0]}, r"DBC cannot vary in 'gate'; fields that can vary: coefficient, imitation"),
        ((0,), {"coefficent": [1.0]}, r"cannot vary in 'coefficent'"),
        ((0,), {"coefficient": []}, r"coefficient must vary over a list of numbers, at least one; it is \[\]"),
        ((0,), {"coefficient": ["auto", 1]}, r"coefficient must vary over a list of numbers.* it is \['auto', 1\]"),
        ((0,), {"coefficient": 3.0}, r"coefficient must vary over a list of numbers.* it is 3.0"),
    ],
)
def test_invalid_seeds_and_varied_values_are_refused(
    seeds: Any, vary: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no type checks
    with pytest.raises(InvalidSettings, match=message):
        fit(GUIDED, DEMOS, seeds=seeds, vary=vary, device="cpu")


@pytest.mark.parametrize("seeds", [2, np.int64(2), np.arange(2), range(2)])
def test_a_number_of_seeds_means_the_first_ones(seeds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    policy = fit(replace(CLONING, training=replace(SHORT, updates=1)), DEMOS, seeds=seeds, device="cpu")
    assert policy.members == [{"seed": 0}, {"seed": 1}]
    policy.save(tmp_path / "policy")  # as whole numbers of Python, which JSON has
    assert Policy.load(tmp_path / "policy").members == policy.members
    options = FitOptions(seeds=seeds, device="cpu")
    run = train_run(tmp_path / "run", policy.method, DEMOS, options)
    assert run.identity()["seeds"] == [0, 1]


@pytest.mark.parametrize(
    ("method", "demos", "options", "message"),
    [
        (BC, DEMOS, {}, r"the first argument must be a method, such as BC\(\) or DBC\(\); it is the class BC"),
        ("bc", DEMOS, {}, "the first argument must be a method.* of type str"),
        (DEMOS, CLONING, {}, "the first argument must be a method.* of type Demonstrations"),
        (DiffusionGuide(), DEMOS, {}, "the first argument must be a method.* of type DiffusionGuide"),
        (CLONING, (X, X), {}, r"demos must be Demonstrations, which .*from_arrays\(.*; it is of type tuple"),
        (CLONING, X, {}, "demos must be Demonstrations.* of type ndarray"),
        (CLONING, DEMOS, {"held_out": "mine.npz"}, "held_out must be Demonstrations.* of type str"),
        (
            CLONING,
            DEMOS,
            {"held_out": OTHER},
            "different sizes cannot be used as demos and held_out: .*act 1, and .*act 3",
        ),
        (CLONING, DEMOS, {"precision": "float16"}, "precision must be float32 or tf32 or bfloat16; it is 'float16'"),
        (CLONING, DEMOS, {"device": None}, "unknown device None; use auto"),
        (replace(GUIDED, coefficient=math.nan), DEMOS, {}, "coefficient must be a finite number; it is nan"),
        (BC(training=Training(lr=math.inf)), DEMOS, {}, "training.lr must be a finite number; it is inf"),
    ],
)
def test_arguments_of_a_wrong_kind_are_one_line(
    method: Any, demos: Any, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(DiffcloneError, match=message):
        fit(method, demos, **options)
    with pytest.raises(DiffcloneError, match=message):
        fit_with_options(method, demos, FitOptions(**options))


def test_members_are_all_combinations_with_seeds_changing_fastest() -> None:
    stack = Stack.of(GUIDED, (7, 8), {"coefficient": [1.0, 2.0]})
    assert stack.members == [
        {"seed": 7, "coefficient": 1.0},
        {"seed": 8, "coefficient": 1.0},
        {"seed": 7, "coefficient": 2.0},
        {"seed": 8, "coefficient": 2.0},
    ]
    expanded = stack.expand_fields(GUIDED, torch.device("cpu"), torch.float32)
    assert isinstance(expanded.coefficient, Tensor)
    assert expanded.coefficient.tolist() == [1, 1, 2, 2]
    assert expanded.imitation == 1.0


def test_a_matrix_holds_a_nets_weights() -> None:
    net = CLONING.init(Dims(2, 1), Rng([0, 1, 2])["init"])
    assert isinstance(net, MLP)
    obs = torch.randn(3, 4, 2)
    before = net(obs)
    matrix = to_matrix(net)
    assert torch.equal(net(obs), before)
    assert torch.equal(from_matrix(net, matrix[[2]])(obs[[2]]), before[[2]])
    matrix[2] = 0
    assert net.out.bias.abs().max() > 0
    assert torch.equal(to_matrix(from_matrix(net, matrix)), matrix)


def test_members_that_diverge_are_warned_about_marked_and_saved(tmp_path: Path) -> None:
    with pytest.warns(DiffcloneWarning, match=r"2 of 4 members diverged .*: seed 0, coefficient nan; seed 1, coeff"):
        policy = fit(GUIDED, DEMOS, seeds=(0, 1), vary={"coefficient": [1.0, math.nan]}, device="cpu")
    assert policy.diverged == [2, 3]
    assert np.isfinite(policy[0](DEMOS.obs)).all()
    assert policy.choose([1, 3]).diverged == [1]
    policy.save(tmp_path / "policy")
    assert Policy.load(tmp_path / "policy").diverged == [2, 3]


def test_it_is_an_error_if_all_members_diverge() -> None:
    with pytest.raises(Diverged, match="no member has finite weights"):
        fit(replace(GUIDED, coefficient=1e39), DEMOS, seeds=(0, 1), device="cpu")
