import importlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import tyro

from benchmarks.speed import inference
from benchmarks.speed.__main__ import Bench
from benchmarks.speed.cases import Case, list_cases
from benchmarks.speed.plot import write_plot
from benchmarks.speed.profiling import Operation, kind_of, profile_updates, shares
from benchmarks.speed.roofline import Work, count_work, roofline_share
from benchmarks.speed.tables import floor_table, profile_table, training_table
from benchmarks.speed.timing import Candidate, describe_machine, time_in_turns
from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.guides import DiffusionGuide, VAEGuide
from diffclone.methods import BC, DBC
from diffclone.model import Dims, Training
from diffclone.nn import Network
from diffclone.records import Record

CPU = torch.device("cpu")
FOUR = Training(batch=4)
SIZES = Dims(3, 2)


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "TURN", 0.0)


def bench(arguments: list[str]) -> None:
    tyro.cli(Bench, args=arguments).run()


def test_a_quick_run_times_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.jsonl"
    bench(["--quick", "--device", "cpu", "--out", str(out), "--json"])
    records = Record.read_all(out)
    assert [r["settings"]["benchmark"] for r in json.loads(capsys.readouterr().out)] == [
        r.settings["benchmark"] for r in records
    ]
    by_name: dict[str, list[Record]] = {}
    for record in records:
        assert record.kind == "benchmark"
        assert record.quick
        assert record.settings["machine"]["cores"] >= 1
        assert "torch" in record.versions
        by_name.setdefault(record.settings["benchmark"], []).append(record)
    assert set(by_name) == {"floor", "training", "rollouts", "latency"}
    assert {r.settings["case"]["model"] for r in by_name["training"]} == {"guide", "dbc"}
    for record in by_name["training"]:
        rates, ratio = record.results["rates"], record.results["ratio"]
        sinusoidal = {"ours, by sines"} if record.settings["case"]["model"] == "guide" else set[str]()
        assert set(rates) - {"ours, short run"} == {"ours", "ours, less precise", "released", "vmap"} | sinusoidal
        mine = rates["ours"]["member_updates_per_second"]
        assert mine == pytest.approx(rates["ours"]["updates_per_second"] * record.settings["case"]["members"])
        assert ratio["released"] == pytest.approx(mine / rates["released"]["updates_per_second"])
        assert record.results["work"]["flops"] > 0
    assert {"BC", "DBC"} <= set(by_name["rollouts"][0].results["players"])
    assert all(rate > 0 for rate in by_name["floor"][0].results.values())


def test_parts_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.jsonl"
    bench(["--quick", "--device", "cpu", "--out", str(out), "--only", "precision,conditioning,full,memory"])
    said = capsys.readouterr()
    assert "memory, which needs a GPU" in said.err
    precision, conditioning, full = Record.read_all(out)
    assert {name: len(found) for name, found in conditioning.results["losses"].items()} == {"table": 2, "sinusoidal": 2}
    losses = precision.results["losses"]
    assert losses["float32"] == pytest.approx(losses["bfloat16"], rel=0.05)
    assert set(precision.results["rates"]) == set(losses)
    together = full.results["guide_seconds"] + full.results["policy_seconds"]
    assert full.results["seconds"] == pytest.approx(together, abs=0.01)
    assert "Maze in full" in said.out


@pytest.mark.parametrize(("flags", "message"), [({"only": "train,fly"}, "'fly'"), ({"tasks": ("spiral",)}, "'spiral'")])
def test_unknown_names_are_reported(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        Bench(**flags).run()


def test_candidates_run_in_turns_after_a_warm_up() -> None:
    played: list[tuple[str, int]] = []

    def runs(name: str) -> Candidate:
        return Candidate(name, 3, lambda count: played.append((name, count)), block=4, sets_threads=True)

    found = time_in_turns([runs("a"), runs("b")], CPU, window=1e-6, rounds=2)
    assert played[0] == ("a", 8)
    assert [name for name, _ in played[-4:]] == ["a", "b", "a", "b"]
    assert all(count % 4 == 0 for _, count in played)
    assert found["a"].slowest <= found["a"].rate <= found["a"].fastest
    assert found["a"].to_dict()["member_updates_per_second"] == pytest.approx(3 * found["a"].rate)


def test_the_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    time_in_turns([Candidate("a", 1, lambda count: None)], CPU, window=1e-6, rounds=1)
    assert torch.get_num_threads() == before


def test_work_of_bc_by_hand() -> None:
    # 3 → 5 → 2: products of 15 and 10 numbers; 20 + 12 weights with biases; batch 4.
    bc = BC(training=FOUR, network=Network(width=5, depth=1))
    assert count_work(bc, SIZES, 1) == Work(6 * 4 * (15 + 10) - 2 * 4 * 15, 4 * (12 * (20 + 12) + 4 * 4 * 5))
    one = count_work(bc, SIZES, 1)
    assert one is not None
    assert count_work(bc, SIZES, 3) == Work(3 * one.flops, 3 * one.traffic)


def test_work_of_a_diffusion_model_by_hand() -> None:
    # 5 → 7 → 5, and a table of 10 rows of 7.
    guide = DiffusionGuide(training=FOUR, width=7, depth=1, steps=10, conditioning="table")
    products = 6 * 4 * (35 + 35) - 2 * 4 * 35
    weights = 12 * (42 + 40) + 10 * 70
    assert count_work(guide, SIZES, 1) == Work(products, 4 * (weights + 4 * 4 * 7 + 4 * 4 * 7))
    waves = count_work(replace(guide, conditioning="sinusoidal"), SIZES, 1)
    assert waves == Work(products + 4 * 4 * 64 * 7, 4 * (12 * (42 + 40) + 4 * 4 * 7 + 12 * (64 * 7 + 7)))


def test_work_of_dbc_by_hand() -> None:
    guide = DiffusionGuide(width=7, depth=1)
    dbc = DBC(training=FOUR, network=Network(width=5, depth=1), guide=guide, away=0.0)
    alone = count_work(BC(training=FOUR, network=Network(width=5, depth=1)), SIZES, 1)
    whole, shared = count_work(dbc, SIZES, 1), count_work(dbc, SIZES, 2)
    assert alone is not None
    assert whole is not None
    assert shared is not None
    # Agent forward and back, expert forward: three passes of 4 rows through 70 numbers.
    assert whole.flops - alone.flops == 3 * 2 * 4 * 70
    assert shared.flops == 2 * whole.flops
    # The guide's weights are read for all members at once.
    assert 2 * whole.traffic - shared.traffic == 4 * 3 * (42 + 40)
    draws = count_work(replace(dbc, guide=replace(guide, draws=8)), SIZES, 1)
    assert draws is not None
    assert draws.flops - alone.flops == 8 * (whole.flops - alone.flops)


def test_other_models_are_not_counted() -> None:
    assert count_work(VAEGuide(), SIZES, 1) is None


def test_the_bound_is_the_larger_part() -> None:
    share = roofline_share({"flops": 200, "traffic": 10}, {"flops_tf32": 100.0, "bytes": 100.0}, "tf32", 0.25)
    assert share == {"share": 0.5, "arithmetic": 0.5, "traffic": 0.025, "bound": "arithmetic"}


def test_cases_with_targets_are_timed_first() -> None:
    todo = list(list_cases(torch.device("cuda"), ("maze", "fetch-pick", "hand-rotate"), quick=False))
    assert len(set(todo)) == len(todo)
    assert todo[:2] == [Case("guide", "maze", 1), Case("guide", "maze", 24)]
    wanted = {Case("dbc", "maze", 24), Case("guide", "fetch-pick", 1), Case("guide", "fetch-pick", 8)}
    assert wanted <= set(todo[:6])
    assert Case("guide", "maze", 64) in todo
    on_two_cores = list(list_cases(CPU, ("maze", "fetch-pick", "hand-rotate"), quick=False))
    assert set(on_two_cores) < set(todo)


def timed_case(model: str, members: int, rate: float, released: float, device: str = "cpu") -> Record:
    rates = {
        "ours": {"updates_per_second": rate / members, "member_updates_per_second": rate, "first_seconds": 1.0},
        "released": {"updates_per_second": released, "member_updates_per_second": released, "first_seconds": 0.1},
    }
    case = {"model": model, "task": "maze", "members": members}
    settings = {"benchmark": "training", "case": case, "width": 128, "machine": describe_machine()}
    results = {"rates": rates, "ratio": {"released": rate / released}, "work": None, "matmul_precision": "float32"}
    return Record("benchmark", settings, [], {}, results, device, 1.0)


@pytest.fixture
def page() -> Any:
    return importlib.import_module("docs.performance_tables")


def verdict(page: Any, records: list[Record], what: str, where: str) -> str:
    [row] = [row for row in page.targets_table(records).rows if row[:2] == [what, where]]
    return row[-1]


def test_targets_are_met_or_missed_by_what_was_measured(page: Any) -> None:
    what = "diffusion model, Maze, 1 member"
    assert verdict(page, [], what, "CPU") == "–"
    assert verdict(page, [timed_case("guide", 1, 4.0, 1.0)], what, "CPU") == "met"
    assert verdict(page, [timed_case("guide", 1, 3.9, 1.0)], what, "CPU") == "missed"
    assert verdict(page, [timed_case("guide", 1, 3.9, 1.0)], what, "GPU") == "–"
    assert verdict(page, [timed_case("guide", 1, 21.0, 1.0, "some GPU")], what, "GPU") == "met"
    # What was measured in several runs is met only if it was in all.
    runs = [timed_case("guide", 1, ratio, 1.0) for ratio in (5.0, 3.0)]
    assert verdict(page, runs, what, "CPU") == "met in 1 of 2 runs"
    assert verdict(page, runs[:1] * 2, what, "CPU") == "met"
    # The same ratio of another model, or of a larger stack, is another target's.
    assert verdict(page, [timed_case("dbc", 24, 9.0, 1.0)], what, "CPU") == "–"
    assert verdict(page, [timed_case("dbc", 24, 9.0, 1.0)], "DBC, Maze, 24 members", "CPU") == "met"


def test_growth_is_the_worst_step_from_stack_to_stack(page: Any) -> None:
    rates = [timed_case("guide", members, rate, 1.0) for members, rate in ((24, 80.0), (1, 10.0), (8, 100.0))]
    assert page.growth(rates) == [pytest.approx(0.8)]
    assert page.growth(rates[:1]) == []


def test_targets_of_time_and_memory_are_at_most(page: Any) -> None:
    def record(name: str, **results: Any) -> Record:
        settings = {"benchmark": name, "precision": "float32"}
        return Record("benchmark", settings, [], {}, results, "some GPU", 1.0)

    assert verdict(page, [record("full", seconds=239.0)], "Maze in full", "GPU") == "met"
    assert verdict(page, [record("full", seconds=241.0)], "Maze in full", "GPU") == "missed"
    linear = record("memory", bytes={"1": 10, "8": 80, "64": 640})
    assert page.memory_growth([linear]) == [pytest.approx(1.0)]
    assert page.memory_growth([record("memory", bytes={"1": 10, "8": 80, "64": 1200})]) == [pytest.approx(2.0)]
    assert page.copies([record("transitions", preparing_bytes=30, training_bytes=20, data_bytes=10)]) == [3]


def test_a_block_without_records_says_so(page: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page, "FILE", tmp_path / "none.jsonl")
    monkeypatch.setattr(page, "IMAGE", tmp_path / "none.svg")
    said = {name: make() for name, make in page.BLOCKS.items()}
    assert "not measured yet" in said.pop("perf-targets")
    del said["perf-success"]  # of other Records
    assert set(said.values()) == {"(not measured yet)"}


def test_quick_runs_are_not_shown(page: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page, "FILE", tmp_path / "performance.jsonl")
    replace(timed_case("guide", 1, 5.0, 1.0), quick=True).append_to(page.FILE)
    assert page.BLOCKS["perf-training"]() == "(not measured yet)"
    timed_case("guide", 1, 5.0, 1.0).append_to(page.FILE)
    assert "| 5 × |" in page.BLOCKS["perf-training"]()


def test_a_plot_has_one_line_per_candidate_and_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "members.svg"
    assert not write_plot([timed_case("guide", 1, 5.0, 1.0)], path)
    assert write_plot([timed_case("guide", members, 5.0 * members, 1.0) for members in (1, 8)], path)
    assert "released style" in path.read_text()
    with pytest.raises(InvalidFile, match="not overwritten"):
        Bench(plot=path).run()


def test_the_later_of_two_measurements_is_shown() -> None:
    table = training_table([timed_case("bc", 1, 10.0, 1.0), timed_case("bc", 1, 1234.0, 1.0)])
    assert len(table.rows) == 1
    assert "1,230" in table.rows[0]
    assert re.fullmatch(r"\| BC \(maze\) \| 1 \|.*", table.to_markdown().splitlines()[-1])


def test_the_processor_is_named() -> None:
    assert describe_machine()["processor"]


def test_the_sinusoidal_embedding_has_its_own_roofline() -> None:
    record = timed_case("guide", 2, 200.0, 1.0)
    rates = {"updates_per_second": 50.0, "member_updates_per_second": 100.0, "first_seconds": 1.0}
    names = ("ours, by sines", "ours, less precise")
    results = {
        **record.results,
        "rates": {**record.results["rates"], **dict.fromkeys(names, rates)},
        "work": {"flops": 10, "traffic": 1},
        "work_by_sines": {"flops": 4, "traffic": 1},
        "less_precise": "tf32",
    }
    peaks = {"flops_float32": 2000.0, "flops_tf32": 1000.0, "bytes": 1e6}
    floor = Record("benchmark", {"benchmark": "floor", "machine": describe_machine()}, [], {}, peaks, "cpu", 1.0)
    rows = {row[0].partition(")")[2]: row for row in floor_table([replace(record, results=results), floor]).rows}
    # 10 of 2000 a second at 100 updates a second; 4 of 2000, and of 1000, at 50.
    assert {name: row[-2] for name, row in rows.items()} == {
        "": "50.0 %",
        ", sinusoidal": "10.0 %",
        ", sinusoidal, TF32": "20.0 %",
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    {
        "aten::bmm": "products",
        "aten::baddbmm": "products",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_warpg": "products",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_tn_ali": "products",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, ": "products",
        "aten::_fused_adam_": "Adam",
        "triton_poi_fused_add_addcdiv_clamp_copy__div_lerp_linalg_vecto": "Adam",
        "aten::linalg_vector_norm": "gathering gradients",
        "triton_red_fused_linalg_vector_norm_1": "gathering gradients",
        "triton_for_fused_0": "gathering gradients",
        "BaddbmmBackward0": "autograd",
        "autograd::engine::evaluate_function: BaddbmmBackward0": "autograd",
        "triton_red_fused_bmm_sum_threshold_backward_1": "other operations",
        "aten::tanh": "other operations",
    }.items(),
)
def test_operations_are_grouped_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_a_profile_adds_up() -> None:
    seen = [Operation("aten::bmm", 8.0, 30.0), Operation("aten::tanh", 3.0, 10.0), Operation("aten::mm", 1.0, 20.0)]
    found = shares(seen, 100.0)
    assert found.pop("products") == pytest.approx(0.5)
    assert found.pop("other operations") == pytest.approx(0.1)
    assert found.pop("between operations") == pytest.approx(0.4)
    assert set(found.values()) == {0.0}
    # Under a profiler all took longer than they do without: then there is nothing between them.
    assert shares(seen, 40.0)["products"] == pytest.approx(50 / 60)
    assert shares(seen, 40.0)["between operations"] == 0


def test_a_profile_counts_the_calls_of_an_update() -> None:
    x = torch.ones(64, 64)

    def run(count: int) -> None:
        for _ in range(count):
            (x @ x @ x).tanh()

    found: Any = profile_updates(Candidate("a", 1, run, block=3), CPU, rounds=2)
    calls = {operation["name"]: operation["calls"] for operation in found["longest"]}
    assert calls["aten::mm"] == pytest.approx(2)
    assert calls["aten::tanh"] == pytest.approx(1)
    assert found["microseconds"] > 0
    slowest_first = [operation["microseconds"] for operation in found["longest"]]
    assert slowest_first == sorted(slowest_first, reverse=True)


def test_profiling_breaks_down_an_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.jsonl"
    bench(["--quick", "--device", "cpu", "--out", str(out), "--only", "profile"])
    [record] = Record.read_all(out)
    assert set(record.results) == {"float32", "bfloat16"}
    for found in record.results.values():
        assert sum(found["shares"].values()) == pytest.approx(1.0)
        assert min(found["shares"]["products"], found["shares"]["Adam"]) > 0
        assert found["longest"][0]["microseconds"] >= found["longest"][1]["microseconds"]
    assert "sinusoidal, bfloat16" in profile_table([record]).rows[1][0]
    assert "Breakdown of an update" in capsys.readouterr().out
