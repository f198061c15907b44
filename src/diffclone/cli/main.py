"""The `diffclone` command: parse arguments, run a command, and report an error as one line."""

import errno
import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from diffclone.cli.console import WIDTH, print_message
from diffclone.cli.interrupt import raise_on_ctrl_c
from diffclone.cli.table import format_table
from diffclone.cli.version import describe_versions
from diffclone.errors import DiffcloneError, DiffcloneWarning, UnknownName
from diffclone.registry import Registry

EXIT_ERROR, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 2, 130, 1
WAYS_OUT = {
    errno.ENOSPC: " Free some space, then run the same command again.",
    **dict.fromkeys((errno.EACCES, errno.EPERM), " Change its permissions, or choose another path."),
    errno.EROFS: " Choose another path.",
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), " A file is where a folder is needed; choose another path."),
}
"""What to do about errors of the operating system."""

COMMANDS: Registry[str] = Registry(
    "command",
    {
        "demo": "Learn FetchPick from 27 demonstrations with three methods, and write a page.",
        "tasks": "List the bundled tasks and their experts.",
        "collect": "Record demonstrations of a task's bundled expert.",
        "record": "Record demonstrations of your own function or policy in any Gymnasium environment.",
        "augment": "Add generated state-action pairs to demonstrations.",
        "inspect": "Check demonstrations for problems before training.",
        "convert": "Write demonstrations in another format.",
        "train": "Train a policy on demonstrations, several seeds at once.",
        "sweep": "Search over widths, learning rates and other settings with Ray Tune.",
        "evaluate": "Run episodes with a trained policy and record the scores.",
        "compare": "Compare runs on the same starts: differences, losses and settings.",
        "calibrate": "Set the alarm thresholds of a trained policy's monitor.",
        "render": "Record an episode of a policy or an expert as a video or an image.",
        "export": "Write a policy to a file that runs without torch.",
        "serve": "Serve a policy's actions over HTTP.",
        "expert": "Score a task's expert.",
        "reproduce": "Run experiments of the paper and compare them with its printed numbers.",
        "merge": "Join files of Records, such as those of shards, into one.",
        "report": "Write the results of the experiments as one page.",
        "version": "Print versions, the device and the extras that are installed.",
    },
)
"""One sentence per command. The class `Train` in `diffclone.cli.train` is the command `train`, and so on."""
PURPOSES = {
    "start": ("demo", "version"),
    "demonstrations": ("inspect", "record", "convert", "augment"),
    "training": ("train", "sweep"),
    "evaluation": ("evaluate", "compare", "render"),
    "deployment": ("export", "serve", "calibrate"),
    "bundled tasks": ("tasks", "collect", "expert"),
    "the paper's experiments": ("reproduce", "merge", "report"),
}
"""The commands as `diffclone --help` lists them."""
MOVED = {"bench": "`diffclone bench` has moved to the repository: python -m benchmarks.speed."}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. A user error is one line and exit code 2."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    report_errors(lambda: dispatch(argv))


def run_command(command_type: type[Any], prog: str) -> None:
    """Run a command that is not one of `diffclone`'s, with the arguments of this process."""

    def work() -> None:
        from diffclone.cli.parser import parse

        parse(command_type, prog, sys.argv[1:]).run()

    report_errors(work)


def report_errors(work: Callable[[], None]) -> None:
    """Call `work`. Print an expected error as one line and exit."""
    warnings.showwarning = show_warning
    if not sys.stdout:  # closed by the shell (>&-)
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows only ASCII must not end a command
            stream.reconfigure(errors="backslashreplace")
    try:
        work()
        sys.stdout.flush()
    except DiffcloneError as error:
        fail(str(error))
    except KeyboardInterrupt as error:
        fail(str(error) or "interrupted.", EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        discard_output()
        sys.exit(EXIT_BROKEN_PIPE)
    except OSError as error:
        discard_output()
        reason = os.strerror(error.errno) if error.errno else str(error).removesuffix(".")
        fail(f"{error.filename or 'writing'}: {reason}.{WAYS_OUT.get(error.errno or 0, '')}")


def fail(message: str, code: int = EXIT_ERROR) -> NoReturn:
    """Print the message and exit."""
    print_message(f"diffclone: {message}")
    sys.exit(code)


def discard_output() -> None:
    """Send what is left in stdout's buffer to nowhere, so that Python does not fail to write it when it exits."""
    with suppress(OSError):  # a stdout that is not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
    """Print a warning of diffclone as one line, and any other as Python does."""
    ours = issubclass(category, DiffcloneWarning)
    text = f"diffclone: warning: {message}" if ours else warnings.formatwarning(message, category, filename, lineno)
    print_message(text.rstrip())


def describe_commands() -> str:
    """Return the page of `diffclone --help`: the commands by purpose."""
    parts = ["usage: diffclone COMMAND [options]", "diffclone COMMAND --help explains a command."]
    width = max(map(len, COMMANDS))
    for purpose, names in PURPOSES.items():
        head, body = format_table(["", ""], [[name.ljust(width), COMMANDS[name]] for name in names], WIDTH - 2)
        parts.append("\n".join([f"{purpose}:", *(f"  {line}" for line in [*head, *body])]))
    return "\n\n".join(parts) + "\n"


def dispatch(argv: list[str]) -> None:
    """Find the command and run it."""
    begun = time.monotonic()  # before the import of torch, which a budget of time includes
    name, rest = (argv[0], argv[1:]) if argv else ("--help", [])
    if name == "help":
        name, rest = (rest[0], ["--help"]) if rest else ("--help", [])
    if name in ("-h", "--help"):
        sys.stdout.write(describe_commands())
        return
    if name in ("-V", "--version"):
        sys.stdout.write(f"{describe_versions()}\n")
        return
    if name in MOVED:
        raise UnknownName(MOVED[name])
    summary = COMMANDS[name]
    module = import_module(f"diffclone.cli.{name}")
    from diffclone.cli.parser import parse

    raise_on_ctrl_c()
    if name == "train":  # its flags depend on the method and on the data
        module.run_train(rest, summary, begun)
    else:
        parse(getattr(module, name.capitalize()), f"diffclone {name}", rest, summary).run()
