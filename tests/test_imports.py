import ast
import json
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import diffclone

ROOT = Path(diffclone.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

LAYERS = [
    ["assets", "errors", "files", "registry", "records", "rng", "settings", "shapes", "statistics"],
    ["deploy.card", "deploy.memory", "deploy.runtime"],
    ["nn", "data"],
    ["model", "nn.energy", "nn.encoder", "tasks"],
    ["guides"],
    ["training", "deploy.monitor", "deploy.monitors"],
    ["methods"],
    ["policy", "deploy.hub", "deploy.policy_config", "deploy.policy_text"],
    [
        "fit",
        "evaluation",
        "training.augmentation",
        "training.estimate",
        "training.search_pace",
        "training.search_plan",
        "training.search_result",
        "training.search_state",
        "training.selection",
    ],
    ["deploy", "training.runs"],
    ["deploy.calibration", "training.search"],
    ["experiments", "testing"],
    ["reports"],
    ["cli"],
    ["diffclone"],
]
"""Low to high: a module imports from its own layer and from lower ones. A module that is not listed is in the layer of
its package. The last layer is the package `diffclone` itself."""
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}


def layer_of(module: str) -> int:
    """Return the layer of a module: diffclone.guides.diffusion is in the layer of guides."""
    name = module.removeprefix("diffclone.")
    while name not in HEIGHT:
        name = name.rpartition(".")[0]
    return HEIGHT[name]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["diffclone", *(part for part in parts if part not in ("__init__", "__main__"))])


PATHS = {name_of(path): path for path in MODULES if path.name != "__main__.py"}


@cache
def direct_imports(path: Path) -> set[str]:
    """Return the modules of diffclone that a file imports, in functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} line {node.lineno}: a relative import"
            module = node.module or ""
            names = {f"{module}.{alias.name}" for alias in node.names}  # `from diffclone.nn import layers`: a module
            found |= {name if name in PATHS else module for name in names}
    return {name for name in found if name.split(".")[0] == "diffclone"}


def add_packages(modules: Iterable[str]) -> set[str]:
    """Return modules, and the imports of the `__init__`s of their packages, which run before a module does."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            names = module.split(".")
            packages = [".".join(names[:length]) for length in range(2, len(names))]
            waiting += [name for package in packages for name in direct_imports(PATHS[package])]
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path: Path) -> None:
    module = name_of(path)
    reached = add_packages({module, *direct_imports(path)})
    upward = sorted(name for name in reached if layer_of(name) > layer_of(module))
    assert not upward, f"{module} imports {', '.join(upward)}, in a layer above it"


def test_the_package_keeps_its_layout() -> None:
    modules = [path for path in MODULES if path.parent == ROOT]
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert len(modules) <= 14
    assert len(folders) <= 12
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert not {name_of(path): length for path, length in lengths.items() if length > 300}


def run_python(code: str) -> Any:
    """Run a program in a new interpreter and return the JSON value that it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LOADED = "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"


def test_reports_do_not_import_torch() -> None:
    modules = [name for name in PATHS if name.startswith("diffclone.reports")]
    assert len(modules) > 5
    loaded = run_python(f"import json, sys, {', '.join(modules)}; {LOADED}")
    assert "matplotlib" in loaded, "the modules were not imported"
    assert "torch" not in loaded


def test_importing_the_package_imports_no_other_package() -> None:
    loaded = run_python(f"import json, sys, diffclone, diffclone.records; {LOADED}")
    assert not {"torch", "numpy", "gymnasium"} & set(loaded)


def test_the_public_names_import_no_optional_package() -> None:
    code = (
        "import json, sys, time, torch; begun = time.process_time(); from diffclone import *; "
        "print(json.dumps([time.process_time() - begun, sorted({m.split('.')[0] for m in sys.modules})]))"
    )
    seconds: list[float] = []
    modules: set[str] = set()
    for _ in range(3):  # the first import compiles and fills the disk cache; the time of torch is not counted
        taken, found = run_python(code)
        seconds.append(taken)
        modules |= set(found)
    assert min(seconds[1:]) < 1
    optional = {
        "mujoco",
        "matplotlib",
        "minari",
        "h5py",
        "pyarrow",
        "zarr",
        "onnx",
        "wandb",
        "tensorboard",
        "tyro",
        "rich",
    }
    assert not optional & modules


def test_type_checkers_and_the_program_see_the_same_public_names() -> None:
    (block,) = [node for node in ast.parse(PATHS["diffclone"].read_text()).body if isinstance(node, ast.If)]
    declared = {
        f"{statement.module}.{alias.name}"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    known: dict[str, tuple[str, ...]] = vars(diffclone)["_MODULES"]
    assert declared == {f"diffclone.{module}.{name}" for module, names in known.items() for name in names}
    assert sorted(name.rpartition(".")[2] for name in declared) == sorted(diffclone.__all__)
    assert set(diffclone.__all__) <= set(dir(diffclone))
    for name in diffclone.__all__:
        assert getattr(diffclone, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(diffclone, "nothing")  # noqa: B009


@pytest.mark.parametrize(
    "imports",
    [
        "import diffclone",
        "import diffclone.fit",
        "from diffclone.fit import Fitted; import diffclone",
        "import diffclone; diffclone.fit; import diffclone.fit",
        "import diffclone, diffclone.policy, importlib; importlib.import_module('diffclone.fit')",
        "from diffclone import *; import diffclone",
    ],
)
def test_fit_is_the_function_whatever_is_imported_first(imports: str) -> None:
    code = "print(json.dumps([diffclone.fit is fit, type(fit).__name__, fit is sys.modules['diffclone.fit'].fit]))"
    found = run_python(f"import json, sys; {imports}; from diffclone import fit; {code}")
    assert found == [True, "function", True]


def test_a_submodule_is_imported_when_it_is_first_used() -> None:
    assert run_python("import json, diffclone; print(json.dumps(diffclone.tasks.TASKS['maze'].name))") == "maze"
