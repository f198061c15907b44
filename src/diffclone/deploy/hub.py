"""Policies on the Hugging Face Hub: download one by its name, and upload one.

Only these files are downloaded: JSON, tensors in the format safetensors, and the model card. None of them is executed.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from diffclone.deploy.card import UNKNOWN_LICENSE, model_card
from diffclone.deploy.monitor import CALIBRATION, WEIGHTS
from diffclone.errors import DiffcloneError, InvalidFile, InvalidSettings, MissingPackage, install_command
from diffclone.files import read_json, write_atomically
from diffclone.records import Record, versions

FILES = ["*.json", "*.safetensors", "README.md"]
"""Patterns of the files that a policy's folder has."""


class HubError(DiffcloneError, OSError):
    """A model that cannot be downloaded from the Hub or uploaded to it."""


def is_hub_name(name: str) -> bool:
    """Return whether a string can be the name of a model on the Hub: "organisation/name"."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name, re.ASCII) is not None


def find_folder(name: str | Path, *, revision: str | None = None, token: str | None = None) -> Path:
    """Return a local folder if there is one with this name, else the downloaded model of the Hub with this name.

    A downloaded model is kept in the cache of huggingface_hub, which is also used if HF_HUB_OFFLINE=1 is set.

    Args:
        name: a folder, or "organisation/name".
        revision: branch, tag or commit of the model; by default its main branch.
        token: the access token of a private model; by default the one of `hf auth login`.
    """
    if Path(name).exists():
        return Path(name)
    if not is_hub_name(str(name)):
        raise InvalidFile(f"there is no folder {name}, and it is not the name of a model on the Hub, such as org/name.")
    hub = import_hub()
    try:
        return Path(hub.snapshot_download(str(name), revision=revision, token=token, allow_patterns=FILES))
    except Exception as error:  # huggingface_hub also raises the errors of its HTTP library
        fail(f"there is no folder {name} here, and the Hub gave no model {name}", error)


def upload(
    folder: Path,
    repo: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    license: str = UNKNOWN_LICENSE,
    datasets: Sequence[str] = (),
    evaluations: Sequence[Record] = (),
    message: str = "Upload a policy",
) -> str:
    """Upload the folder of a policy in one commit and return the address of the commit.

    The model card in the folder is written again, with the name, the licence, the datasets and the evaluations.
    """
    if not is_hub_name(repo):
        raise InvalidSettings(f"a model on the Hub is named organisation/name; {repo!r} is not such a name.")
    scores = [record for record in evaluations if record.kind == "evaluation"]
    card = model_card(read_json(folder / "config.json"), scores, repo=repo, license=license, datasets=datasets)
    write_atomically(folder / "README.md", card.encode())
    hub = import_hub()
    try:
        api = hub.HfApi(token=token, library_name="diffclone", library_version=versions().get("diffclone"))
        api.create_repo(repo, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo,
            folder_path=folder,
            commit_message=message,
            delete_patterns=[CALIBRATION, WEIGHTS],  # those of an earlier policy do not fit this one
        )
    except Exception as error:  # huggingface_hub also raises the errors of its HTTP library
        fail(f"the policy could not be uploaded to {repo}", error)
    return str(commit)


def import_hub() -> Any:
    """Import huggingface_hub, an optional package."""
    try:
        import huggingface_hub
    except ImportError:
        raise MissingPackage(f"the Hub needs the package huggingface_hub. Try: {install_command('hub')}.") from None
    return huggingface_hub


def fail(what: str, error: Exception) -> NoReturn:
    """Raise `HubError` with the first line of another error."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    raise HubError(f"{what}: {lines[0]}") from error
