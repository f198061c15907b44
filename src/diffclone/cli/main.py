"""The command `diffclone`: parse, run, and answer a mistake with one line."""

import argparse
import dataclasses
import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import tyro

from diffclone.cli.commands import Demo, Evaluate, Train, find_demonstrations
from diffclone.cli.console import say, show_table
from diffclone.cli.data_commands import Augment, Convert
from diffclone.cli.deploy_commands import Export, Serve
from diffclone.cli.inspect_commands import Inspect
from diffclone.cli.monitor_commands import Calibrate
from diffclone.cli.report_commands import Report
from diffclone.cli.reproduce import Reproduce
from diffclone.cli.task_commands import Collect, ExpertCommand, Render, Tasks
from diffclone.data.formats import PREFIXES
from diffclone.errors import DiffcloneError, InvalidSettings
from diffclone.experiments import PRESETS, preset
from diffclone.guides import GUIDES
from diffclone.methods import DBC
from diffclone.model import Method
from diffclone.records import versions
from diffclone.registry import Registry
from diffclone.shapes import Coefficient, Scalar
from diffclone.tasks import TASKS
from diffclone.training.suggestion import suggest

EXIT_FAULT, EXIT_INTERRUPTED = 2, 130

COMMANDS: Registry[type[Any]] = Registry(
    "command",
    {
        "demo": Demo,
        "tasks": Tasks,
        "collect": Collect,
        "augment": Augment,
        "inspect": Inspect,
        "convert": Convert,
        "train": Train,
        "evaluate": Evaluate,
        "calibrate": Calibrate,
        "render": Render,
        "export": Export,
        "serve": Serve,
        "expert": ExpertCommand,
        "reproduce": Reproduce,
        "report": Report,
    },
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is one line and exit code 2."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    answering_faults(lambda: dispatch(argv))


def run_command(command_type: type[Any], prog: str) -> None:
    """Run a command that is not one of `diffclone`'s: a script's."""
    answering_faults(lambda: tyro.cli(command_type, prog=prog, registry=scalar_rule()).run())


def answering_faults(work: Callable[[], None]) -> None:
    """Answer a user's mistake with one line and exit code 2."""
    try:
        work()
    except DiffcloneError as fault:
        say(f"diffclone: {fault}")
        sys.exit(EXIT_FAULT)
    except KeyboardInterrupt as stop:
        say(f"diffclone: {stop or 'interrupted.'}")
        sys.exit(EXIT_INTERRUPTED)
    except OSError as fault:
        way_out = " Free some space, then give the same command again." if fault.errno == errno.ENOSPC else ""
        say(f"diffclone: {fault.filename or 'writing'}: {os.strerror(fault.errno or 0)}.{way_out}")
        sys.exit(EXIT_FAULT)


def dispatch(argv: list[str]) -> None:
    """Parse and run."""
    if not argv or argv[0] in ("-h", "--help"):
        rows = [[name, (entry.__doc__ or "").strip()] for name, entry in COMMANDS.items()]
        show_table("diffclone COMMAND --help explains each:", ["command", "what it does"], rows)
        return
    if argv[0] in ("-V", "--version"):
        sys.stdout.write(f"diffclone {versions()['diffclone']}\n")
        return
    name, rest = argv[0], argv[1:]
    command_type = COMMANDS[name]
    rules = scalar_rule()
    if command_type is Train:
        method = peek_method(rest)
        both = dataclasses.make_dataclass(
            "TrainWithSettings",
            [
                ("command", Annotated[Train, tyro.conf.arg(name="")]),
                (
                    "settings",
                    Annotated[type(method), tyro.conf.arg(name="")],
                    dataclasses.field(default=method),
                ),
            ],
            frozen=True,
        )
        # What may be absent (an encoder) is there with its flags where the preset has it.
        whole = (tyro.conf.AvoidSubcommands,)
        chosen: Any = tyro.cli(
            both, prog="diffclone train", description=Train.__doc__, args=rest, registry=rules, config=whole
        )
        chosen.command.run(chosen.settings)
    else:
        tyro.cli(command_type, prog=f"diffclone {name}", args=rest, registry=rules).run()


def peek_method(argv: list[str]) -> Method[Any]:
    """The settings that the flags of `train` start from: they depend on --method, --preset and the task."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag, default in (
        ("--method", "dbc"),
        ("--preset", None),
        ("--task", None),
        ("--guide", None),
        ("--out", None),
    ):
        parser.add_argument(flag, default=default)
    known, rest = parser.parse_known_args(argv)
    task = known.task
    data = next((a for a in rest if is_data(a)), None)
    if known.preset is not None and task is None:
        task = data if data is None else find_demonstrations(data, None)[0]
        if task is None:
            presets = ", ".join(PRESETS)
            raise InvalidSettings(f"a preset belongs to a task; say --task NAME. Presets: {presets}.")
    method = preset(task, known.method, known.preset)
    if known.guide is not None:
        if not isinstance(method, DBC):
            raise InvalidSettings(f"--guide {known.guide} is for dbc; {known.method} has no guide.")
        method = dataclasses.replace(method, guide=GUIDES[known.guide]())
    if known.preset is not None or data is None:
        return method
    return suggest(method, known.method, find_demonstrations(data, None)[1])


def is_data(text: str) -> bool:
    """Whether an argument names demonstrations."""
    return text in TASKS or text.startswith(PREFIXES) or Path(text).exists()


def scalar_rule() -> tyro.constructors.ConstructorRegistry:
    """Tell the parser that a stackable field is a number on the command line, or a word it knows."""
    rules = tyro.constructors.ConstructorRegistry()

    @rules.primitive_rule
    def rule(
        info: tyro.constructors.PrimitiveTypeInfo,
    ) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:  # pyright: ignore[reportUnusedFunction]
        words = {Scalar: (), Coefficient: ("auto",)}.get(cast(Any, info.type))
        if words is None:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="|".join(("FLOAT", *words)),
            instance_from_str=lambda given: given[0] if given[0] in words else float(given[0]),
            is_instance=lambda value: value in words or isinstance(value, float | int),
            str_from_instance=lambda value: [str(value)],
        )

    return rules


if __name__ == "__main__":
    main()
