import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import diffclone

ROOT = Path(diffclone.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

LAYERS = [
    ["assets", "errors", "files", "registry", "records", "rng", "settings", "shapes", "statistics"],
    ["deploy.card", "deploy.conformal", "deploy.runtime"],
    ["nn", "data"],
    ["model", "nn.energy", "nn.encoder", "tasks"],
    ["guides"],
    ["training", "deploy.monitor"],
    ["methods"],
    ["policy"],
    ["fit", "evaluation", "training.augmentation"],
    ["deploy", "tasks.environments", "tasks.rendering", "tasks.expert_scores", "training.suggestion", "training.runs"],
    ["deploy.calibration"],
    ["experiments", "testing"],
    ["reports"],
    ["cli"],
    ["diffclone"],
]
"""Low to high: a module imports from its own layer and from lower ones. A module that is not named lies with its
package. The last is the package itself."""
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}


def layer_of(module: str) -> int:
    """diffclone.guides.diffusion lies where guides lies."""
    name = module.removeprefix("diffclone.")
    while name not in HEIGHT:
        name = name.rpartition(".")[0]
    return HEIGHT[name]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["diffclone", *(part for part in parts if part not in ("__init__", "__main__"))])


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} line {node.lineno}: a relative import"
            module = node.module or ""
            # `from diffclone import api` is an import of diffclone.fit.
            found |= {f"{module}.{a.name}" if module == "diffclone" else module for a in node.names}
    return found


def ours(path: Path) -> set[str]:
    known = {name_of(module) for module in MODULES}
    inner = {name for name in imports(path) if name.split(".")[0] == "diffclone"}
    return {name if name in known else "diffclone" for name in inner}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path: Path) -> None:
    module = name_of(path)
    upward = sorted(name for name in ours(path) if layer_of(name) > layer_of(module))
    assert not upward, f"{module} imports {', '.join(upward)}, which lie above it"


def test_reports_do_without_torch() -> None:
    modules = [path for path in MODULES if name_of(path).startswith("diffclone.reports")]
    if not modules:
        pytest.skip("there are no reports yet")
    # What they import of ours, and what that imports, down to the ground.
    by_name = {name_of(path): path for path in MODULES}
    reached: set[str] = set()
    waiting = [name_of(path) for path in modules]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += ours(by_name[name])
    guilty = sorted(name for name in reached if any(i.split(".")[0] == "torch" for i in imports(by_name[name])))
    assert not guilty, f"reports reach torch through {', '.join(guilty)}"


def test_importing_is_quick_and_leaves_heavy_packages_alone() -> None:
    code = (
        "import json, sys, time, torch; begun = time.perf_counter(); import diffclone; "
        "print(json.dumps([time.perf_counter() - begun, sorted({m.split('.')[0] for m in sys.modules})]))"
    )
    seconds: list[float] = []
    modules: set[str] = set()
    for _ in range(3):  # the first import compiles and warms the disk's cache; what torch takes is not ours
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        taken, found = json.loads(result.stdout)
        seconds.append(taken)
        modules |= set(found)
    assert min(seconds[1:]) < 1
    assert (
        not {"mujoco", "matplotlib", "minari", "h5py", "pyarrow", "zarr", "onnx", "wandb", "tensorboard", "tyro"}
        & modules
    )
