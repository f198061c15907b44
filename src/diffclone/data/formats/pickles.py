"""Pickles, which are recognised in order to be refused: loading one may run any code."""

from pathlib import Path

from diffclone.errors import InvalidData

SUFFIXES = (".pkl", ".pickle")


def refuse_pickle(path: Path) -> None:
    """Raise `pickle_error` if a file is a pickle. Old files of tensors (.pt) begin like one."""
    if path.is_dir() or path.suffix == ".pt":
        return
    with path.open("rb") as file:
        begin = file.read(2)
    # The signature of protocols 2 to 5; older ones have none.
    if path.suffix in SUFFIXES or (begin[:1] == b"\x80" and begin[1:] in (b"\2", b"\3", b"\4", b"\5")):
        raise pickle_error(f"{path} is a pickle")


def pickle_error(what: str) -> InvalidData:
    """Return the error of a file that is a pickle, or that contains one, with the way out."""
    return InvalidData(
        f"{what}, which can run any code when it is loaded, and is not read. If you trust it, load it in Python and "
        "save its arrays: Demonstrations.from_episodes(episodes).save('demos.npz')."
    )
