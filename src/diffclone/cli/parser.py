"""Parse the arguments of a command with tyro. An error is one line."""

import contextlib
import dataclasses
import difflib
import inspect
import io
import os
import re
import sys
from collections.abc import Generator, Sequence
from typing import Any, TypeVar, cast

import tyro

from diffclone.cli.help import PAGE_WIDTH, format_help, is_help, read_page
from diffclone.errors import InvalidSettings
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


def parse_known(command: type[T], prog: str, arguments: Sequence[str], **more: Any) -> tuple[T, list[str]]:
    """Return the command and the arguments that it does not have."""
    with one_line_errors(prog):
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
    message = " ".join(first).removesuffix(".").replace("Missing", "missing")
    for pattern, plain in (
        (r"^Error parsing (settings\.)?", ""),
        (r"invalid literal for int.. with base 10: ('.*')", r"\1 is not an integer"),
        (r"could not convert string to float: ('.*')", r"\1 is not a number"),
        (r"no type matching (\S+) could be instantiated from \[('.*?')\].*", r"\2 is not one of \1"),
    ):
        message = re.sub(pattern, plain, message)
    if others and others[0][0] == "Argument helptext:":  # followed by `--flag TYPE`
        message = re.sub(r"^--[^:]*", others[0][1], message)
    return f"{message}."


def help_page(command: type[Any], prog: str) -> str:
    """Return tyro's help page, at a fixed width."""
    page, before = io.TextIOWrapper(io.BytesIO(), "utf-8"), os.environ.get("COLUMNS")  # other encodings have no boxes
    os.environ["COLUMNS"] = str(PAGE_WIDTH)
    try:
        with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
            parse_known(command, prog, ["--help"])
    finally:
        del os.environ["COLUMNS"]
        os.environ.update({} if before is None else {"COLUMNS": before})
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
