"""Parse the arguments of a command with tyro. An error is one line."""

import contextlib
import dataclasses
import difflib
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar, cast

import tyro

from diffclone.cli.help import PAGE_WIDTH, format_help, is_help, plain_usage, read_page
from diffclone.errors import InvalidSettings
from diffclone.registry import describe_unknown
from diffclone.shapes import Coefficient, Scalar

T = TypeVar("T")
USUAL_NAMES = {
    **dict.fromkeys(("--epochs", "--iterations", "--train-steps", "--num-steps"), ("--training.updates",)),
    **dict.fromkeys(("--learning-rate", "--rate"), ("--training.lr",)),
    **dict.fromkeys(("--batch-size", "--bs"), ("--training.batch",)),
    **dict.fromkeys(("--hidden-size", "--hidden-dim", "--hidden"), ("--network.width",)),
    **dict.fromkeys(("--layers", "--num-layers"), ("--network.depth",)),
    **dict.fromkeys(("--output", "--save", "--dir", "--folder"), ("--out",)),
    **dict.fromkeys(("--gpu", "--cuda"), ("--device",)),
    **dict.fromkeys(("--algo", "--algorithm", "--model"), ("--method",)),
    "--lambda": ("--coefficient",),
    "--num-episodes": ("--episodes",),
}
"""Names of options in other programs, and ours."""

UNWRAPPED = 10_000
"""Columns in which tyro breaks no line, and so no value that an error quotes."""
TYPES = {"INT": "an integer", "FLOAT": "a number"}
PLAIN: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"^Error parsing (settings\.)?": "",
    r"invalid literal for int.. with base 10: ('.*')": r"\1 is not an integer",
    r"could not convert string to float: ('.*')": r"\1 is not a number",
    r"no type matching (?:\{None\}\|)?(\S+) could be instantiated from \[('.*?')\].*": lambda found: (
        f"{found[2]} is not {TYPES.get(found[1], f'one of {found[1]}')}"
    ),
    r"Could not find valid parse for arguments: \['([^' ]+,[^' ]*)'\]": lambda found: (
        f"separate values with spaces: {found[1].replace(',', ' ').strip()}"
    ),
    r"Could not find valid parse for arguments: \[(.*)\]": r"cannot read \1 as values of this type",
    r"^invalid choice '(.*)' for argument '(\S+)'\. Expected one of \((.*)\)": lambda found: describe_unknown(
        "value", found[1], [name for name in re.findall("'(.*?)'", found[3]) if name != "None"], of=f" of {found[2]}"
    ),
    r"^missing value for argument '(\S+)'\. Expected 1 values": r"\1 needs a value",
}
"""What tyro says, as regular expressions, and what is printed instead."""


def parse(command: type[T], prog: str, arguments: Sequence[str], summary: str | None = None) -> T:
    """Return the command with its fields set by the arguments. Print the help and exit if it is requested."""
    if is_help(arguments):
        about, short = summary or inspect.cleandoc(command.__doc__ or ""), "--help-all" not in arguments
        sys.stdout.write(format_help(help_page(command, prog), prog, about, find_settings(command), short=short))
        sys.exit(0)
    try:
        parsed, unknown = parse_known(command, prog, arguments, description=summary)
    except InvalidSettings:
        check_flags(command, prog, arguments)  # an unknown flag may be the cause
        raise
    if unknown:
        check_flags(command, prog, arguments)
        raise InvalidSettings(f"unexpected argument {unknown[0]!r}. See {prog} --help.")
    return parsed


def parse_known(
    command: type[T], prog: str, arguments: Sequence[str], *, columns: int = UNWRAPPED, **more: Any
) -> tuple[T, list[str]]:
    """Return the command and the arguments that it does not have. tyro prints its page or error in `columns`."""
    with terminal_width(columns), one_line_errors(prog):
        return tyro.cli(
            command,
            prog=prog,
            args=arguments,
            registry=scalar_rule(),
            # A field that may be None (an encoder) has flags where its default has a value.
            config=(tyro.conf.AvoidSubcommands,),
            return_unknown_args=True,
            **more,
        )


@contextlib.contextmanager
def terminal_width(columns: int) -> Generator[None, None, None]:
    """Let tyro print lines of this width."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(columns)
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        os.environ.update({} if before is None else {"COLUMNS": before})


@contextlib.contextmanager
def one_line_errors(prog: str) -> Generator[None, None, None]:
    """Raise `InvalidSettings` with one line where tyro prints a box of lines and exits."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            yield
    except SystemExit as end:
        if end.code != 2:
            raise
        raise InvalidSettings(f"{condense(printed.getvalue())} See {prog} --help.") from None


def condense(box: str) -> str:
    """Return the message of one of tyro's boxes as one line.

    Below the title, rules separate the message from the help of the argument. Deeply indented lines are descriptions.
    """
    text = re.sub(r"\x1b\[[\d;]*m|\[/?bold\]", "", box).translate(str.maketrans("│╭╮╰╯", 5 * " "))
    parts: list[list[str]] = [[]]
    for line in text.splitlines()[1:]:
        if re.fullmatch(r"\s*[─-]{5,}\s*", line):
            parts.append([])
        elif line.strip() and not line.startswith(10 * " "):
            parts[-1].append(line.strip())
    first, *others = [part for part in parts if part]
    message = " ".join(first).replace("Missing", "missing")
    for pattern, plain in PLAIN.items():
        message = re.sub(pattern, plain, message)
    if others and others[0][0] == "Argument helptext:":  # followed by `--flag TYPE`
        message = re.sub(r"^--[^:]*", plain_usage(others[0][1]), message)
    return f"{message.rstrip('. ')}."


def help_page(command: type[Any], prog: str) -> str:
    """Return tyro's help page."""
    page = io.TextIOWrapper(io.BytesIO(), "utf-8")  # other encodings have no boxes
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        parse_known(command, prog, ["--help"], columns=PAGE_WIDTH)
    page.seek(0)
    return page.read()


def find_settings(command: type[Any]) -> set[str]:
    """Return the options that set fields of the method, if the command has a method."""
    defaults: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(command)}
    method = defaults.get("settings")
    return set() if method is None else {field.name.replace("_", "-") for field in dataclasses.fields(method)}


def check_flags(command: type[Any], prog: str, arguments: Sequence[str]) -> None:
    """Raise `InvalidSettings` for a flag that the command does not have, with the nearest one."""
    names = [option.flags for option in read_page(help_page(command, prog))]
    flags = {"--help", "--help-all", *re.findall(r"--[\w.-]+", " ".join(names))}
    for argument in arguments:
        flag = argument.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in flags:
            ends = [known for known in sorted(flags) if known.endswith(f".{flag.removeprefix('--')}")]
            meant = [name for name in USUAL_NAMES.get(flag, ()) if name in flags]
            nearest = ends[-1:] or meant or difflib.get_close_matches(flag, flags, n=1, cutoff=0.6)
            hint = f"; did you mean {nearest[0]}?" if nearest else "."
            raise InvalidSettings(f"unknown option {flag}{hint} See {prog} --help.")


def scalar_rule() -> tyro.constructors.ConstructorRegistry:
    """Return a rule for stackable fields: a number, or one of the words that the field's type allows."""
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
