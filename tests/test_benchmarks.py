import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from diffclone.records import Record

ROOT = Path(__file__).parents[1]


@pytest.fixture
def latency(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("latency", ROOT / "benchmarks/latency.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "latency", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TURN", 0.0)  # a call each
    return module


def test_latency_times_every_method(latency: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "latency.jsonl"
    latency.Latency(rounds=1, json=True, out=out).run()
    [record] = Record.read_all(out)
    assert record.kind == "benchmark"
    assert record.settings["benchmark"] == "latency"
    assert record.settings["threads"] == 1
    assert {method["type"] for method in record.settings["methods"].values()} == set(latency.METHODS)
    taken, ratio = record.results["milliseconds"], record.results["ratio_to_bc"]
    assert list(taken) == list(ratio) == list(record.settings["methods"])
    assert ratio["BC"] == 1
    assert all(ratio[name] == pytest.approx(taken[name] / taken["BC"]) for name in taken)
    assert taken["Diffusion Policy, ancestral 1000"] > taken["Diffusion Policy, ddim 5"] > 0
    assert json.loads(capsys.readouterr().out)["results"] == record.results
