import sys
from pathlib import Path

import pytest
import tyro

from scripts.paper_recipe import PaperRecipe
from scripts.run_jobs import Job, read_jobs, run_jobs


def job(name: str, code: str, *needs: str, slot: str = "gpu") -> Job:
    return Job(name, f'{sys.executable} -c "{code}"', slot, needs)


def test_jobs_run_after_those_they_need_and_only_once(tmp_path: Path) -> None:
    log = tmp_path / "order"
    jobs = [job(name, f"open('{log}', 'a').write('{name}')", *needs) for name, needs in (("a", ""), ("b", "a"))]
    assert run_jobs(jobs, {"gpu": 2}, tmp_path / "out") == []
    assert run_jobs(jobs, {"gpu": 2}, tmp_path / "out") == []
    assert log.read_text() == "ab"


def test_a_failed_job_blocks_those_that_need_it_and_no_others(tmp_path: Path) -> None:
    jobs = [
        job("bad", "print('reason'); exit(3)"),
        job("after", "pass", "bad"),
        job("last", "pass", "after"),
        job("other", "pass"),
    ]
    assert run_jobs(jobs, {"gpu": 1}, tmp_path) == ["bad", "after", "last"]
    assert (tmp_path / "bad.log").read_text() == "reason\n"
    assert (tmp_path / "other.done").exists()


def test_a_job_is_interrupted_at_the_deadline_and_runs_again(tmp_path: Path) -> None:
    saved, script = tmp_path / "saved", tmp_path / "long.py"
    script.write_text(
        f"import pathlib, time\nsaved = pathlib.Path({str(saved)!r})\n"
        "try:\n    time.sleep(0 if saved.exists() else 60)\nfinally:\n    saved.touch()\n"
    )
    jobs = [Job("long", f"{sys.executable} {script}", "gpu")]
    assert run_jobs(jobs, {"gpu": 1}, tmp_path / "out", seconds=2.0) == ["long"]
    assert saved.exists()
    assert run_jobs(jobs, {"gpu": 1}, tmp_path / "out") == []


def test_a_list_of_jobs_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    entry = '[[jobs]]\nname = "a"\ncommand = "true"\nslot = "cpu"\n'
    path.write_text(entry)
    assert read_jobs(path) == [Job("a", "true", "cpu")]
    path.write_text(entry + entry)
    with pytest.raises(SystemExit, match="two jobs are named a"):
        read_jobs(path)
    path.write_text(entry + 'needs = ["b"]\n')
    with pytest.raises(SystemExit, match="a needs b, which is not an earlier job"):
        read_jobs(path)


def test_the_jobs_of_ant_reach_are_commands_of_the_recipe() -> None:
    jobs = read_jobs(Path(__file__).parents[1] / "scripts" / "ant_reach.toml")
    parsed = [tyro.cli(PaperRecipe, args=job.command.split()[3:]) for job in jobs]
    assert {(one.command, one.method) for one in parsed} == {
        ("guide", "dbc"),
        *((command, method) for command in ("train", "evaluate") for method in ("bc", "dbc")),
    }
    assert {(one.task, one.precision) for one in parsed} == {("ant-reach", "tf32")}
