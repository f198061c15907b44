"""Result tables of all experiments with made-up numbers, in the format of real Records."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from diffclone.experiments.results import ComparedCell, MeasuredValue, PrintedValue, ResultTable, Status
from diffclone.records import Record

METHODS = ("BC", "Implicit BC", "Diffusion Policy", "DBC")
TASKS = ("Maze", "FetchPick", "HandRotate", "Cheetah", "Walker", "AntReach")
WALLS = [[i, j] for i in range(8) for j in range(8) if i in (0, 7) or j in (0, 7) or (i, j) in ((3, 3), (4, 4))]
SPIRAL = [[1 + 0.02 * k * math.cos(k / 12), 1 + 0.02 * k * math.sin(k / 12)] for k in range(80)]


def record(kind: str, *, quick: bool = False, number: int = 0, **results: Any) -> Record:
    """Return a Record whose fields do not depend on time or machine."""
    return Record(
        kind=kind,
        settings={"type": "dbc", "coefficient": 30.0, "guide": {"type": "diffusion"}, "number": number},
        members=[{"seed": seed} for seed in range(5)],
        data={"fingerprint": "b591c848e3e57aea", "episodes": 100, "steps": 18525},
        results=results,
        device="a device",
        seconds=12.5,
        quick=quick,
        versions={"diffclone": "0.1.0", "torch": "2.6.0"},
        when="2026-01-02T03:04:05+00:00",
    )


def cell(
    row: str,
    column: str,
    mean: float | None,
    printed: float | None = None,
    *,
    unit: str = "success",
    status: Status | None = None,
    reason: str | None = None,
    note: str | None = None,
    quick: bool = False,
    number: int = 0,
) -> ComparedCell:
    """Return a cell with an interval of ±10 %; unless it is given, numbers with a printed one are compared."""
    value = None
    if mean is not None:
        value = MeasuredValue(
            mean, 0.9 * mean, 1.1 * mean, 5, 100, record("evaluation", quick=quick, number=number, task=column)
        )
    by = None if mean is None or printed is None else mean - printed
    if status is None:
        status = "not printed" if by is None else "compared"
    shown = None if printed is None else PrintedValue(printed, 2.5, 3, note)
    return ComparedCell(row, column, unit, value, shown, status, by, reason, column.lower(), row.lower())


def make_table(
    name: str,
    cells: Sequence[ComparedCell] = (),
    measured: Mapping[str, tuple[Record, ...]] | None = None,
    *,
    quick: bool = False,
    **changes: Any,
) -> ResultTable:
    """Return a table with rows and columns in the order of the cells."""
    rows = tuple(dict.fromkeys(cell.row for cell in cells))
    columns = tuple(dict.fromkeys(cell.column for cell in cells))
    about = f"What of {name}?"
    given: dict[str, Any] = {"title": f"About {name}", "about": about, "source": "ours", "settings": {"a": "b"}}
    return ResultTable(
        name=name,
        rows=rows,
        columns=columns,
        cells=tuple(cells),
        measured=measured or {},
        quick=quick,
        **given | changes,
    )


def grid(
    rows: Sequence[str], columns: Sequence[str], *, unit: str = "success", quick: bool = False
) -> list[ComparedCell]:
    """Return cells whose numbers fall from left to right."""
    return [
        cell(r, c, 90.0 - 7 * y - 3 * x, 88.0 - 7 * y, unit=unit, quick=quick, number=10 * y + x)
        for y, r in enumerate(rows)
        for x, c in enumerate(columns)
    ]


def samples(label: str) -> Record:
    """Return actions near four points."""
    expert = [[0.5, 0.0], [0.0, 0.5], [-0.7, 0.0], [0.0, -0.7]] * 20
    sampled = [[x + 0.1 * math.sin(k), y + 0.1 * math.cos(k)] for k, (x, y) in enumerate(expert)]
    return record("samples", label=label, states=SPIRAL, expert=expert, sampled=sampled)


def paths(label: str, off: float) -> Record:
    """Return spirals; the error of each grows with `off`."""
    taken = [[[x * (1 + off * s), y] for x, y in SPIRAL] for s in range(3)]
    return record("trajectories", label=label, task="spiral", paths=taken, success=[True, off == 0, False])


def curves(label: str, speed: float) -> Record:
    """Return falling losses of two members."""
    updates = list(range(0, 1000, 100))
    fall = [[math.exp(-speed * u / 300), 1.1 * math.exp(-speed * u / 300)] for u in updates]
    return record("curves", label=label, updates=updates, losses={"L_BC": fall, "L_DM": fall})


def field() -> Record:
    """Return arrows that point to the centre."""
    positions = [[0.5 * i, 0.5 * j] for i in range(14) for j in range(14)]
    directions = [[3.3 - x, 3.3 - y] for x, y in positions]
    return record(
        "field", label="Maze", positions=positions, directions=directions, expert=[[3.3, 3.3]] * 9, walls=WALLS
    )


def all_tables(*, quick: bool = False) -> list[ResultTable]:
    """Return one table per experiment, in the order of the registry."""
    levels = (0.0, 0.002, 0.01, 0.1)
    spiral = (paths("expert", 0.0), paths("BC", 0.01), paths("DM", 0.2))
    main = [
        cell(
            row, column, 90.0 - y if x < 4 else 4900.0 - y, 91.0 if x < 4 else 4873.3, number=10 * y + x, quick=quick,
            unit="return" if column in ("Cheetah", "Walker") else "success",
        )
        for y, row in enumerate(METHODS)
        for x, column in enumerate(("Maze", "FetchPick", "HandRotate", "AntReach", "Cheetah", "Walker"))
    ]  # fmt: skip
    speeds = [cell(row, "episodes/s", 10.0**k, 5.0, unit="episodes/s") for k, row in enumerate(METHODS)]
    speeds += [cell(row, "ms", 10.0**-k, unit="ms", status="not comparable") for k, row in enumerate(METHODS)]
    drops = [cell(row, "drop from 1 to 2", 27.0, 26.1, unit="drop") for row in METHODS]
    errors = [cell("diffusion model", f"{level:g}", 0.02 + level, 0.0213, unit="mse") for level in levels]
    rebuilt = tuple(
        record("reconstruction", label=f"{level:g}", action_noise=level, mse=[0.02 + level, 0.03 + level])
        for level in levels
    )
    return [
        make_table("main-table", main, quick=quick),
        make_table("multimodality", [cell("ratio", task, 0.4, 0.184, unit="ratio") for task in TASKS], quick=quick),
        make_table("generalization", [*grid(METHODS, ("1", "1.25", "1.5", "1.75", "2")), *drops], quick=quick),
        make_table("inference", speeds, quick=quick),
        make_table(
            "manifold",
            grid(("BC", "DM", "DBC"), ("success",)),
            {"samples": (samples("diffusion model"),), "trajectories": (*spiral, paths("DBC", 0.0))},
            quick=quick,
        ),
        make_table(
            "noise-injection",
            [*grid(("DM", "DM-0.01", "BC"), ("success",)), *errors],
            {
                "reconstruction": rebuilt,
                "reconstruction-curve": (
                    record("reconstruction-curve", label="0", steps=[100, 1000], curve=[[0.001, 0.003], [0.2, 0.4]]),
                ),
                "samples": (samples("0"), samples("0.01")),
                "trajectories": (*spiral, paths("DM-0.01", 0.1)),
            },
            quick=quick,
        ),
        make_table(
            "guides", grid(("BC", "EBM", "VAE", "GAN", "DM"), ("Maze, with BC", "Maze, without BC")), quick=quick
        ),
        make_table("coefficient", grid(("DBC",), ("0", "0.1", "0.5", "1", "10")), quick=quick),
        make_table("expert-term", grid(("L_agent alone", "L_DM"), TASKS), quick=quick),
        make_table(
            "loss-curves", (), {"curves": (curves("BC", 1.0), curves("DM", 0.2), curves("DBC", 1.5))}, quick=quick
        ),
        make_table("dataset-size", grid(METHODS, ("25 %", "50 %", "75 %", "100 %")), quick=quick),
        make_table(
            "augmentation", [cell("real pairs", "success", 92.0), cell("gain", "success", 2.0, 2.06)], quick=quick
        ),
        make_table("pixels", grid(("BC", "DBC"), ("CarRacing",), unit="return"), quick=quick),
        make_table("gradient-field", (), {"field": (field(),)}, quick=quick),
        make_table("known-errors", grid(("VAE", "DM alone"), ("Maze, without BC",)), quick=quick),
    ]
