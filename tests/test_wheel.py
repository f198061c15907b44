import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    """Return the standard output of a command. The message of a failed assertion holds all of its output."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    clean["OMP_NUM_THREADS"] = "1"  # as in all tests: several run at the same time
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("diffclone-*-py3-none-any.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    assert {"diffclone/assets/maze.npz", "diffclone/assets/CHECKSUMS", "diffclone/py.typed"} <= names
    package = ROOT / "src" / "diffclone"
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    inside = {name for name in names if name.startswith("diffclone/")}
    assert inside == {f"diffclone/{path.relative_to(package).as_posix()}" for path in files}
    assert all(name.split("/")[0].endswith(".dist-info") for name in names - inside)


def test_the_wheel_holds_no_benchmarks_scripts_or_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    folders = {part for name in names for part in name.split("/")[:-1]}
    assert not folders & {"bench", "benchmarks", "scripts", "tests", "docs", "examples"}
    modules = {Path(name).stem for name in names}
    assert not modules & {"expert_training", "train_expert", "ppo", "bench"}
    assert not [name for name in names if name.startswith("test_") or "/test_" in name]


def test_a_clean_environment_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    scripts = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, "-m", "pip", "--python", scripts / "python", "install", "--quiet", "--no-compile")
    run(*pip, "-c", ROOT / "constraints.txt", f"{wheel}[tasks,report]", cwd=tmp_path)
    where = run(scripts / "python", "-c", "import diffclone; print(diffclone.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "venv")
    table = run(scripts / "diffclone", "demo", "--quick", "--out", tmp_path / "page", cwd=tmp_path)
    assert "DBC" in table
    assert "<svg" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
