import json
import sys
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import jaxtyping
import numpy as np
import pytest
import torch

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Policy, Training, evaluate, fit
from diffclone.deploy.calibration import calibrate
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings, UnknownMember
from diffclone.files import digest, read_tensors, write_tensors
from diffclone.methods import IBC, METHODS, DiffusionPolicy, IBCLangevin
from diffclone.model import Method
from diffclone.nn import layers
from diffclone.nn.energy import Langevin
from diffclone.rng import Rng
from diffclone.tasks import TASKS
from own_models import Reconstruction, Robust

RNG = np.random.default_rng(0)
OBS = RNG.uniform(-1, 1, (200, 3)).astype(np.float32)
ACT = np.stack([OBS[:, 0], -OBS[:, 1]], 1)
BOUNDS = [[-0.5, -0.5], [0.5, 0.4]]
"""Tighter than the expert's actions, so that some are clipped."""
DEMOS = Demonstrations.from_arrays(OBS, ACT, episode_ends=[100, 200], meta={"task": "twist", "action_bounds": BOUNDS})
BRIEF = Training(updates=150, batch=32, lr=1e-2)
METHOD = BC(training=BRIEF, network=Network(width=16, depth=2))


@pytest.fixture(scope="module")
def policy() -> Policy:
    return fit(METHOD, DEMOS, seeds=(5, 6, 7), device="cpu")


@pytest.fixture
def saved(policy: Policy, tmp_path: Path) -> Path:
    policy.save(tmp_path / "policy")
    return tmp_path / "policy"


@pytest.mark.parametrize(
    ("given", "one", "three"),
    [
        ((3,), (2,), (3, 2)),
        ((4, 3), (4, 2), (3, 4, 2)),
        ((1, 3), (1, 2), (3, 1, 2)),
    ],
)
def test_shapes_of_actions(
    policy: Policy, given: tuple[int, ...], one: tuple[int, ...], three: tuple[int, ...]
) -> None:
    obs = RNG.uniform(-1, 1, given)
    assert policy[0](obs).shape == one
    assert policy(obs).shape == three
    assert np.allclose(policy(obs)[1], policy[1](obs), atol=1e-6)


def test_members_may_receive_different_observations(policy: Policy) -> None:
    obs = RNG.uniform(-1, 1, (3, 4, 3))
    answer = policy(obs)
    assert answer.shape == (3, 4, 2)
    for member in range(3):
        assert np.allclose(answer[member], policy[member](obs[member]), atol=1e-6)
    assert policy[0](obs[:1]).shape == (1, 4, 2)


def test_arrays_in_any_memory_layout_give_the_same_actions(policy: Policy) -> None:
    expected = policy(OBS[:6])
    assert np.array_equal(policy(OBS[5::-1])[:, ::-1], expected)
    assert np.array_equal(policy(OBS[:6].astype(">f4")), expected)
    assert np.array_equal(policy(np.asfortranarray(OBS[:6])), expected)


@pytest.mark.parametrize("name", METHODS)
def test_no_method_acts_on_nan(name: str) -> None:
    brief: dict[str, Any] = {"training": replace(BRIEF, updates=1), "normalisation": "z-score"}
    if "guide" in {f.name for f in fields(METHODS[name])}:
        brief["guide"] = DiffusionGuide(training=replace(BRIEF, updates=1), width=8, depth=1, steps=10)
    policy = fit(METHODS[name](**brief), DEMOS, device="cpu")
    bad = OBS[:2].copy()
    bad[1, 0] = np.nan
    with pytest.raises(InvalidData, match="an observation contains NaN or infinity"):
        policy(bad)
    bad[1, 0] = np.inf  # clipped
    assert np.isfinite(policy(bad)).all()


@pytest.mark.parametrize("shape", [(), (2, 4, 3), (3, 2, 4, 3)])
def test_a_wrong_shape_is_named(policy: Policy, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidData, match=r"observations have shape \(.*\).*expected.* with 3 members"):
        policy(np.zeros(shape))


@pytest.mark.parametrize("shape", [(4,), (5, 2), (3, 5, 4)])
def test_a_wrong_size_is_named(policy: Policy, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidData, match=f"observations have {shape[-1]} numbers; the policy was trained on 3"):
        policy(np.zeros(shape))


def test_numpy_in_numpy_out_torch_in_torch_out(policy: Policy) -> None:
    from_numpy, from_torch = policy(OBS[:5]), policy(torch.tensor(OBS[:5]))
    assert isinstance(from_numpy, np.ndarray)
    assert isinstance(from_torch, torch.Tensor)
    assert not from_torch.requires_grad
    assert np.array_equal(from_numpy, from_torch.numpy())
    assert np.array_equal(from_numpy, policy(OBS[:5].astype(np.float64)))


def test_actions_are_clipped_to_the_bounds(policy: Policy) -> None:
    answer, (low, high) = policy(OBS), np.array(BOUNDS, dtype=np.float32)
    assert np.all((answer >= low) & (answer <= high))
    for bound in (low, high):
        assert 0.05 < (answer == bound).mean() < 0.6
    inside = np.abs(ACT).max(1) < 0.3
    assert np.abs(answer - ACT)[:, inside].mean() < 0.1  # and where nothing is cut, it has learned


def test_actions_are_not_clipped_without_bounds() -> None:
    free = Demonstrations.from_arrays(OBS, ACT, episode_ends=[200])
    assert np.abs(fit(METHOD, free, device="cpu")(OBS)).max() > 0.7


def test_predict_has_the_signature_of_stable_baselines(policy: Policy) -> None:
    for obs in (OBS[0], OBS[:4]):
        act, state = policy[1].predict(obs, state=None, episode_start=np.zeros(1, dtype=np.bool_), deterministic=True)
        assert state is None
        assert np.array_equal(act, policy[1](obs))
    with pytest.raises(InvalidData, match=r"3 members; choose one: policy\[0\]\.predict"):
        policy.predict(OBS[0])


def test_a_read_only_observation_gives_no_warning(policy: Policy) -> None:
    obs = OBS[:2].copy()
    obs.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy(obs)
        policy[0].predict(obs[0])


def test_returned_actions_do_not_share_memory(policy: Policy) -> None:
    obs = OBS[:2].copy()
    answer = policy(obs)
    kept = answer.copy()
    obs[:] = 9
    policy(obs)
    assert np.array_equal(answer, kept)


def test_members_by_index(policy: Policy) -> None:
    assert [dict(policy[m].members[0]) for m in (0, -1)] == [{"seed": 5}, {"seed": 7}]
    assert np.array_equal(policy[-1](OBS), policy[2](OBS))
    for member in (3, 9, -4):
        with pytest.raises(IndexError, match=f"member {member} does not exist; the policy has members 0 to 2"):
            policy[member]


def test_choosing_members(policy: Policy) -> None:
    before = policy(OBS)
    chosen = policy.choose([2, 0])
    assert [member["seed"] for member in chosen.members] == [7, 5]
    assert np.allclose(chosen(OBS), before[[2, 0]], atol=1e-6)
    with torch.no_grad():
        for parameter in chosen.net.parameters():
            parameter.zero_()
    assert np.array_equal(policy(OBS), before)  # the chosen have weights of their own


def test_a_slice_chooses_members(policy: Policy) -> None:
    assert [member["seed"] for member in policy[1:].members] == [6, 7]
    assert [member["seed"] for member in policy.choose([-1, 0]).members] == [7, 5]
    assert np.allclose(policy[::-1](OBS), policy(OBS)[::-1], atol=1e-6)


@pytest.mark.parametrize("members", ["a", None, 1.5, slice(3, 5)])
def test_a_member_of_a_wrong_kind_is_one_line(policy: Policy, members: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no type checks
    message = r"(member \S+ does not exist|no member was chosen); the policy has members 0 to 2"
    with pytest.raises(UnknownMember, match=message):
        policy[members]


@pytest.mark.parametrize(("members", "message"), [([0, 3], "member 3 does not exist"), (0, r"a list such as \[0, 1\]")])
def test_members_that_do_not_exist_are_not_chosen(
    policy: Policy, members: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(UnknownMember, match=message):
        policy.choose(members)


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ("a", "an array of numbers is needed.* of type str"),
        (None, "an array of numbers is needed.* of type NoneType"),
        ([None, None, None], "an array of numbers is needed.* the values are object"),
        ([[1.0, 2.0], [3.0]], "an array is needed; rows of these values differ in length"),
    ],
)
def test_observations_of_a_wrong_kind_are_one_line(
    policy: Policy, obs: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for act in (policy, policy[0].predict, policy[0].session(), policy[0].plan):
        with pytest.raises(InvalidData, match=message):
            act(obs)


def test_a_choice_must_be_given_one_hot() -> None:
    meta = {"observation_keys": [["pos", 1], ["mode", 2]]}
    policy = fit(METHOD, Demonstrations.from_arrays(OBS, ACT, episode_ends=[200], meta=meta), device="cpu")
    assert policy({"pos": 0.5, "mode": [0, 1]}).shape == (2,)
    with pytest.raises(InvalidData, match=r"mode has the shape \(\); .* A choice among 2 is given one-hot: 1 at the"):
        policy({"pos": 0.5, "mode": 1})
    with pytest.raises(InvalidData, match=r"its last axes must have 2 numbers together\.$"):
        policy({"pos": 0.5, "mode": np.zeros(3)})


def test_tensors_may_be_part_of_a_graph_of_gradients(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    obs = torch.tensor(OBS[:2], requires_grad=True)
    expected = policy[0](OBS[:2])
    assert np.array_equal(policy[0](obs).numpy(), expected)
    assert np.array_equal(policy[0].predict(cast(Any, 1 * obs))[0], expected)
    assert np.array_equal(policy[0].plan(cast(Any, 1 * obs[:, None]))[:, 0], expected)


def test_repr_shows_method_members_and_sizes(policy: Policy) -> None:
    assert repr(policy) == "Policy(BC, 3 members, obs 3, act 2)"
    assert repr(policy[0]) == "Policy(BC, 1 member, obs 3, act 2)"


@pytest.mark.parametrize("kind", ["bc", "dbc"])
def test_a_loaded_policy_is_the_saved_one(kind: str, tmp_path: Path) -> None:
    brief = Training(updates=5)
    guided = DBC(training=brief, network=METHOD.network, guide=DiffusionGuide(training=brief, width=8, steps=20))
    method: BC | DBC = METHOD if kind == "bc" else guided
    policy = fit(method, DEMOS, seeds=(1, 2), vary={"coefficient": [0.5, 3.0]} if kind == "dbc" else None, device="cpu")
    policy.save(tmp_path / "new" / "policy")
    again = Policy.load(str(tmp_path / "new" / "policy"))
    assert sorted(p.name for p in (tmp_path / "new" / "policy").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert np.array_equal(again(OBS), policy(OBS))
    assert again.method == policy.method
    assert list(again.members) == list(policy.members)
    assert again.data == policy.data
    assert again.data["fingerprint"] == DEMOS.fingerprint


def test_saving_overwrites_nothing(policy: Policy, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("precious")
    for target in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(InvalidFile, match="exists already and is not overwritten"):
            policy.save(target)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    assert (tmp_path / "notes.txt").read_text() == "precious"
    (tmp_path / "empty").mkdir()
    policy.save(tmp_path / "empty")
    with pytest.raises(InvalidFile, match="not overwritten"):
        policy.save(tmp_path / "empty")


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("name", "message"),
    [("config.json", "a folder without config.json"), ("model.safetensors", r"no such file: .*model\.safetensors")],
)
def test_a_missing_file_is_named(saved: Path, name: str, message: str) -> None:
    (saved / name).unlink()
    with pytest.raises(InvalidFile, match=message):
        Policy.load(saved)


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_damaged_weights_are_named(saved: Path, keep: int) -> None:
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InvalidFile, match=r"model\.safetensors is damaged"):
        Policy.load(saved)


def test_a_config_of_other_weights_names_both_shapes(saved: Path) -> None:
    method = json.loads((saved / "config.json").read_text())["method"]
    change_config(saved, method=method | {"network": method["network"] | {"width": 17}})
    with pytest.raises(InvalidFile, match=r"requires net\.\S+ of shape \(.*17.*\); model\.safetensors has \(.*16.*\)"):
        Policy.load(saved)


@pytest.mark.parametrize(
    "changes", [{"observation_size": 4}, {"action_size": 1}, {"members": [{"seed": 5}]}], ids=lambda c: next(iter(c))
)
def test_a_config_of_other_sizes_is_refused(saved: Path, changes: dict[str, Any]) -> None:
    change_config(saved, **changes)
    with pytest.raises(InvalidFile, match=r"config\.json requires .* of shape .*; model\.safetensors has"):
        Policy.load(saved)


@pytest.mark.parametrize("number", [0, 2, None, "1"])
def test_another_format_is_refused(saved: Path, number: Any) -> None:
    change_config(saved, format=number)
    with pytest.raises(InvalidFile, match=f"has format {number}; this version of diffclone reads format 1"):
        Policy.load(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": None}, "method must be an object"),
        ({"method": {"type": "dbc", "network": {"width": "16"}}}, "method.network.width must be a whole number"),
        ({"method": {"type": "mine"}}, "unknown method 'mine'.*Import the module that registers 'mine'"),
        ({"method": {"type": "mine:Mine"}}, "the method Mine of the module mine is not loaded"),
        ({"method": {}}, "method.type must be the name of a method; it is None"),
        ({"method": {"type": "bc", "network": {"width": 10**7}}}, "width is 10000000; it can be at most 65536"),
        (
            {"method": {"type": "bc", "network": {"width": 65536, "depth": 1}}},
            r"requires net.hidden.0.weight of shape \(3, 3, 65536\)",
        ),
        ({"members": 3}, "members must be a list"),
        ({"members": []}, "number of members must be at least 1"),
        ({"members": [3]}, r"members\[0\] must be an object; it is 3"),
        ({"members": [{"seed": "x"}]}, r"members\[0\].seed must be a whole number or a number; it is 'x'"),
        ({"observation_size": 3.0}, "observation_size must be a whole number; it is 3.0"),
        ({"observation_size": -3}, "observation_size, action_size and the number of members must be at least 1"),
        ({"action_size": "two"}, "action_size must be a whole number; it is 'two'"),
        ({"data": []}, r"data must be an object; it is \[\]"),
        ({"sha256": 5}, "sha256 must be a string or null; it is 5"),
    ],
)
def test_a_malformed_config_is_one_clear_line(saved: Path, changes: dict[str, Any], message: str) -> None:
    change_config(saved, **changes)
    with pytest.raises(InvalidFile, match=message) as raised:
        Policy.load(saved)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(str(saved))


@pytest.mark.parametrize("missing", ["method", "members", "observation_size", "action_size", "data"])
def test_a_config_without_a_key_names_it(saved: Path, missing: str) -> None:
    config = json.loads((saved / "config.json").read_text())
    del config[missing]
    (saved / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidFile, match=rf"config\.json: .*{missing}"):
        Policy.load(saved)


def test_tensors_that_do_not_belong_are_named(saved: Path) -> None:
    tensors, about = read_tensors(saved / "model.safetensors")
    for changes, message in (
        ({"net.other": torch.ones(2)}, r"model\.safetensors has net\.other, which config\.json does not ask for"),
        ({"bounds.low": torch.ones(3)}, r"requires bounds\.low of shape \(2,\); model\.safetensors has \(3,\)"),
    ):
        write_tensors(saved / "model.safetensors", {**tensors, **changes}, about)
        change_config(saved, sha256=digest(saved / "model.safetensors"))
        with pytest.raises(InvalidFile, match=message):
            Policy.load(saved)


def test_a_policy_of_a_method_that_is_not_registered_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, method in (("mine", Robust()), ("guide", DBC(guide=Reconstruction()))):
        brief = replace(method, training=Training(updates=3, batch=8))
        policy = fit(brief, DEMOS, seeds=(1, 2), device="cpu")
        policy.save(tmp_path / name)
        again = Policy.load(tmp_path / name)
        assert again.method == brief
        assert np.array_equal(again(DEMOS.obs), policy(DEMOS.obs))
    assert "# own_models:Robust policy" in (tmp_path / "mine" / "README.md").read_text()
    monkeypatch.delitem(sys.modules, "own_models")
    with pytest.raises(InvalidFile, match=r"config\.json: the method Robust of the module own_models is not loaded"):
        Policy.load(tmp_path / "mine")


@pytest.mark.parametrize("content", ["{", "", "[]", '{"format": 1}'])
def test_a_file_that_is_not_a_config_is_refused(saved: Path, content: str) -> None:
    (saved / "config.json").write_text(content)
    with pytest.raises(InvalidFile, match="policy"):
        Policy.load(saved)


# Policies that sample.

SHORT = Training(updates=30, batch=32, lr=1e-3)
SAMPLERS: dict[str, Method[Any]] = {
    "diffusion-policy": DiffusionPolicy(training=SHORT, width=16, depth=2, steps=50, calls=5),
    "ibc": IBC(training=SHORT, network=Network(16, 1, "relu", "default"), samples=30),
    "ibc-langevin": IBCLangevin(
        training=SHORT,
        width=16,
        blocks=1,
        training_walk=Langevin(steps=2),
        walks=3,
        walk=Langevin(steps=3),
        last_walk=Langevin(steps=2, start=0.01),
    ),
}
FREE = Demonstrations.from_arrays(OBS, ACT, episode_ends=[200])


@pytest.fixture(scope="module", params=SAMPLERS)
def sampling(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder to load from: a loaded policy has not acted yet."""
    folder = tmp_path_factory.mktemp("sampling") / request.param
    fit(SAMPLERS[request.param], FREE, seeds=(5, 6), device="cpu").save(folder)
    return folder


def test_a_sampling_policy_draws_new_numbers_and_a_reloaded_one_the_same(sampling: Path) -> None:
    first, again = Policy.load(sampling), Policy.load(sampling)
    answers = [first(OBS[:20]) for _ in range(3)]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert np.abs(answers[one] - answers[other]).max() > 1e-3
    for answer in answers:
        assert np.array_equal(again(OBS[:20]), answer)


def test_a_deterministic_policy_repeats_its_actions(policy: Policy) -> None:
    assert np.array_equal(policy(OBS), policy(OBS))


def test_members_draw_their_own_numbers_alone_or_together(sampling: Path) -> None:
    together, (first, second) = Policy.load(sampling), (Policy.load(sampling)[member] for member in (0, 1))
    for _ in range(2):
        answer = together(OBS[:20])
        assert np.allclose(answer[0], first(OBS[:20]), atol=1e-4)
        assert np.allclose(answer[1], second(OBS[:20]), atol=1e-4)
    # With equal weights, members differ in their seed only.
    twin = Policy(first.method, first.net, first.normaliser, [{"seed": 6}])
    assert not np.allclose(twin(OBS[:20]), Policy.load(sampling)[0](OBS[:20]), atol=1e-3)


def test_more_rows_do_not_change_the_first_ones(sampling: Path) -> None:
    few, many = Policy.load(sampling)(OBS[:3]), Policy.load(sampling)(OBS[:20])
    assert np.allclose(few, many[:, :3], atol=1e-4)


@pytest.mark.parametrize("name", ["diffusion-policy", "ibc"])
def test_a_member_acts_the_same_alone_or_stacked(name: str) -> None:
    policy = fit(SAMPLERS[name], TASKS["maze"].demonstrations(), seeds=(0, 1), device="cpu")
    together = evaluate(policy, "maze", episodes=3)
    assert len(set(together.length.flatten())) > 1  # some rows end before others
    alone = evaluate(policy[1], "maze", episodes=3)
    assert np.array_equal(alone.length[0], together.length[1])
    assert np.array_equal(alone.success[0], together.success[1])
    assert alone.returns[0] == pytest.approx(together.returns[1], rel=1e-3)
    assert not np.allclose(together.returns[0], together.returns[1], rtol=1e-3)


# Other ways to act with the same weights.


def test_acting_changes_the_sampler_and_nothing_else() -> None:
    policy = fit(SAMPLERS["diffusion-policy"], FREE, seeds=(5, 6), device="cpu")
    other = policy.acting(sampler="ddim", calls=50)
    assert other.net is policy.net
    assert other.members == policy.members
    assert isinstance(other.method, DiffusionPolicy)
    assert isinstance(policy.method, DiffusionPolicy)
    assert (other.method.sampler, other.method.calls) == ("ddim", 50)
    assert (policy.method.sampler, policy.method.calls) == ("dpm-solver++", 5)
    assert other.method == DiffusionPolicy(
        training=SHORT, width=16, depth=2, steps=50, sampler="ddim", calls=50, within_box=True
    )
    first = policy(OBS)
    assert np.abs(other(OBS) - first).max() > 1e-3
    assert np.array_equal(other.acting(sampler="dpm-solver++", calls=5)(OBS), first)


def test_changed_acting_settings_are_saved(sampling: Path, tmp_path: Path) -> None:
    name = {"diffusion-policy": "calls", "ibc": "samples", "ibc-langevin": "walks"}[sampling.name]
    changed = Policy.load(sampling).acting(**{name: 2})
    changed.save(tmp_path / "policy")
    again = Policy.load(tmp_path / "policy")
    assert again.method == changed.method != Policy.load(sampling).method
    assert np.array_equal(again(OBS), changed(OBS))


def test_an_integer_is_accepted_for_a_float_setting() -> None:
    changed = fit(SAMPLERS["ibc"], FREE, device="cpu").acting(noise=1).method
    assert isinstance(changed, IBC)
    assert type(changed.noise) is float


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        (
            "diffusion-policy",
            {"width": 8},
            "width cannot be changed in a trained DiffusionPolicy; these can: .*sampler,",
        ),
        ("diffusion-policy", {"calls": 3, "steps": 9}, "steps cannot be changed.*sampler, calls, extra, within_box"),
        ("diffusion-policy", {"cals": 3}, "cals cannot be changed"),
        ("diffusion-policy", {"calls": "3"}, "calls is 5; '3' is not of type int"),
        ("diffusion-policy", {"calls": 3.0}, "calls is 5; 3.0 is not of type int"),
        ("diffusion-policy", {"calls": True}, "calls is 5; True is not of type int"),
        ("diffusion-policy", {"within_box": 1}, "within_box is True; 1 is not of type bool"),
        ("diffusion-policy", {"calls": 0}, "calls within 1 … steps"),
        ("diffusion-policy", {"calls": 51}, "51 of 50"),
        ("ibc", {"counter_examples": 3}, "counter_examples cannot .*these can: .*samples, iterations, noise, shrink"),
        ("ibc", {"noise": "small"}, "noise is 0.33; 'small' is not of type float"),
        ("ibc", {"samples": 0}, "must be at least 1"),
        ("ibc-langevin", {"walk": 3}, "walk is Langevin.*; 3 is not of type Langevin"),
        ("bc", {"network": 3}, "network cannot be changed in a trained BC; these can: execute, ensemble"),
    ],
)
def test_settings_that_cannot_be_changed_are_named(name: str, wrong: dict[str, Any], message: str) -> None:
    brief = Training(updates=1)
    policy = fit(replace({"bc": METHOD, **SAMPLERS}[name], training=brief), FREE, device="cpu")
    with pytest.raises(InvalidSettings, match=message):
        policy.acting(**wrong)


def test_a_policy_without_a_calibrated_monitor_says_how_to_make_one(policy: Policy) -> None:
    with pytest.raises(InvalidSettings, match=r"no calibrated monitor\. Make one with: diffclone calibrate RUN"):
        policy.monitor(OBS[0], ACT[0])


def test_a_monitor_is_saved_with_its_policy(tmp_path: Path) -> None:
    guide = DiffusionGuide(training=BRIEF, width=16)
    method = DBC(training=BRIEF, network=Network(width=16, depth=2), guide=guide)
    ends = list(range(10, 201, 10))
    demos = Demonstrations.from_arrays(OBS, ACT, episode_ends=ends, meta={"action_bounds": BOUNDS})
    training, held_out = demos.split(0.5)
    policy = fit(method, training, device="cpu")
    with pytest.raises(InvalidData, match="the policy was trained on these episodes"):
        calibrate(policy, training)
    monitored = calibrate(policy, held_out, 0.1)
    monitored.save(tmp_path / "policy")
    again = Policy.load(tmp_path / "policy")
    ours, theirs = (p[0].monitor(OBS[:5], ACT[:5]) for p in (monitored, again))
    assert np.array_equal(ours.both, theirs.both)
    assert theirs.alarm is not None
    assert again.monitor(100 * OBS[0], ACT[0]).alarm.both  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([-1.0], [1.0], r"two rows of 2 numbers, .* they are \[-1.0\] and \[1.0\]"),
        ([-1.0, 1.0], [1.0, -1.0], r"none of the first above the second; they are \[-1.0, 1.0\] and \[1.0, -1.0\]"),
        (-1.0, 1.0, r"they are -1.0 and 1.0"),
        ([-1.0, float("nan")], [1.0, 1.0], r"they are \[-1.0, nan\]"),
    ],
)
def test_invalid_action_bounds_are_refused(low: Any, high: Any, message: str) -> None:
    policy = fit(BC(training=replace(BRIEF, updates=1), network=Network(width=4, depth=1)), DEMOS, device="cpu")
    with pytest.raises(InvalidData, match=message):
        replace(policy, bounds=(torch.tensor(low), torch.tensor(high)))


def test_loading_initialises_the_weights_of_one_member_only(
    saved: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty wide members would take seconds."""
    initialised: list[int] = []
    original = layers.orthogonal

    def orthogonal(fan_in: int, fan_out: int, rng: Rng) -> torch.Tensor:
        initialised.extend([] if rng.device.type == "meta" else [len(rng.seeds)])
        return original(fan_in, fan_out, rng)

    monkeypatch.setattr(layers, "orthogonal", orthogonal)
    loaded = Policy.load(saved)
    assert set(initialised) == {1}
    assert len(loaded) == 3
    for ours, theirs in zip(loaded.net.parameters(), policy.net.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_path_without_a_policy_is_one_line_that_says_what_is_meant(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    for file in (tmp_path / "mine.npz", tmp_path / "run" / "run.json"):
        file.write_text("{}")
    found = {
        "mine.npz": "is a file",
        "empty": "is a folder without config.json",
        "nothing": "is not there",
        "run": "is a run that has not finished training",
    }
    for name, what in found.items():
        with pytest.raises(InvalidFile, match=rf"{what}. Give the folder of a finished run, or one that Policy.save"):
            Policy.load(tmp_path / name)
