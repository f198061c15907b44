"""What `diffclone reproduce claims` trains and measures for the claims of the paper, apart from the study of tuning."""

from diffclone.experiments.catalogue.claims import CLAIMS
from diffclone.experiments.claims import Cell, ClaimTest
from diffclone.experiments.specification import Experiment, Measurement, TableCell, Variant

ABOUT = "Which claims of the paper hold?"


def list_cells() -> list[Cell]:
    """Return the cells of all claims."""
    tests = [test for claim in CLAIMS for test in claim.tests if isinstance(test, ClaimTest)]
    return [cell for test in tests for contrast in test.contrasts for _, cell in contrast]


def claims_experiments(*, small: bool = False) -> list[Experiment]:
    """Return the cells and measurements that claims need, as experiments with our settings or with the small ones.

    A measurement belongs to an experiment of the catalogue, and is found in its Records. Ratios of numbers that are
    measured once have our settings.
    """
    cells = [cell for cell in list_cells() if cell.small == small]
    measured = [cell.measured[:2] for cell in cells if cell.measured is not None]
    for claim in CLAIMS if not small else ():
        for test in claim.tests:
            measured += [] if isinstance(test, ClaimTest) else [test.first, test.second]
    by_experiment: dict[str, list[Measurement]] = {}
    for name, measurement in measured:
        by_experiment.setdefault(name, []).append(measurement)
    trained = tuple(cell.trained for cell in cells if cell.trained is not None)
    return [
        Experiment("claims", "Claims", ABOUT, cells=trained),
        *(Experiment(name, name, ABOUT, measurements=tuple(own)) for name, own in by_experiment.items()),
    ]


def recipe_experiment() -> Experiment:
    """Return the cells of the paper's own recipe, to be run with the paper's settings."""
    named = {cell.recipe: cell.method for cell in list_cells() if cell.recipe is not None}
    cells = tuple(
        TableCell(title, task, Variant(task, method.split("/")[0])) for (task, method), title in named.items()
    )
    return Experiment("claims-recipe", "The paper's recipe", ABOUT, cells=cells)
