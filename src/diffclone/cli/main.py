"""The `diffclone` command: parse arguments, run a command, and report an error as one line."""

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from diffclone.cli.console import print_message, print_table
from diffclone.errors import DiffcloneError, DiffcloneWarning, UnknownName
from diffclone.records import versions
from diffclone.registry import Registry

EXIT_ERROR, EXIT_INTERRUPTED = 2, 130

COMMANDS: Registry[str] = Registry(
    "command",
    {
        "demo": "Train BC and DBC on Maze, compare them, and write a page.",
        "tasks": "List the bundled tasks and their experts.",
        "collect": "Record demonstrations of a task's bundled expert.",
        "augment": "Add generated state-action pairs to demonstrations.",
        "inspect": "Check demonstrations for problems before training.",
        "convert": "Write demonstrations in another format.",
        "train": "Train a policy on demonstrations, several seeds at once.",
        "evaluate": "Run episodes with a trained policy and record the scores.",
        "calibrate": "Set the alarm thresholds of a trained policy's monitor.",
        "render": "Record an episode of a policy or an expert as a video or an image.",
        "export": "Write a policy to a file that runs without torch.",
        "serve": "Serve a policy's actions over HTTP.",
        "expert": "Score a task's expert.",
        "reproduce": "Run experiments of the paper and compare them with its printed numbers.",
        "report": "Write the results of the experiments as one page.",
    },
)
"""One sentence per command. The class `Train` in `diffclone.cli.train` is the command `train`, and so on."""
MOVED = {"bench": "`diffclone bench` has moved to the repository: python -m benchmarks.speed."}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. An error of the user is one line and exit code 2."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    report_errors(lambda: dispatch(argv))


def report_errors(work: Callable[[], None]) -> None:
    """Call `work`; print an expected error as one line and exit."""
    warnings.showwarning = show_warning
    try:
        work()
    except DiffcloneError as error:
        print_message(f"diffclone: {error}")
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt as error:
        print_message(f"diffclone: {error}" if str(error) else "diffclone: interrupted.")
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        hint = " Free some space, then run the same command again." if error.errno == errno.ENOSPC else ""
        print_message(f"diffclone: {error.filename or 'writing'}: {os.strerror(error.errno or 0)}.{hint}")
        sys.exit(EXIT_ERROR)


def show_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Print a warning of diffclone as one line, and any other as Python does."""
    ours = issubclass(category, DiffcloneWarning)
    print_message(f"diffclone: warning: {message}" if ours else warnings.formatwarning(message, category, *place))


def dispatch(argv: list[str]) -> None:
    """Find the command and run it."""
    if not argv or argv[0] in ("-h", "--help"):
        rows = [[name, summary] for name, summary in COMMANDS.items()]
        print_table("diffclone COMMAND --help explains each:", ["command", "what it does"], rows)
    elif argv[0] in ("-V", "--version"):
        sys.stdout.write(f"diffclone {versions()['diffclone']}\n")
    elif argv[0] in MOVED:
        raise UnknownName(MOVED[argv[0]])
    else:
        name, rest = argv[0], argv[1:]
        summary = COMMANDS[name]
        module = import_module(f"diffclone.cli.{name}")
        if name == "train":
            module.run_train(rest, summary)
        else:
            parse(getattr(module, name.capitalize()), f"diffclone {name}", rest, summary).run()


def run_command(command_type: type[Any], prog: str) -> None:
    """Parse `sys.argv` and run a command that is not part of `diffclone`, such as a script's."""
    report_errors(lambda: parse(command_type, prog, sys.argv[1:]).run())


def parse(command_type: type[Any], prog: str, arguments: list[str], summary: str | None = None) -> Any:
    """Return the command with its fields from the arguments."""
    import tyro

    from diffclone.cli.arguments import scalar_rule

    return tyro.cli(command_type, prog=prog, description=summary, args=arguments, registry=scalar_rule())
