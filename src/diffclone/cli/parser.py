"""Parse the arguments of a command with tyro. An error is one line."""

import contextlib
import difflib
import io
import re
import sys
from collections.abc import Generator, Sequence
from typing import Any, NoReturn, TypeVar, cast

import tyro

from diffclone.errors import InvalidSettings
from diffclone.shapes import Coefficient, Scalar

T = TypeVar("T")


def parse(command: type[T], prog: str, arguments: Sequence[str], summary: str | None = None) -> T:
    """Return the command with its fields set by the arguments. Print the help and exit if it is requested."""
    parsed, unknown = parse_known(command, prog, arguments, description=summary)
    if unknown:
        report_unknown(command, prog, arguments, unknown)
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

    Rules separate its parts: the message, then the argument's help. In both, deeper lines are descriptions.
    """
    lines = [line.strip("│╭╮╰╯").removeprefix(" ").rstrip() for line in box.splitlines()]
    parts: list[list[str]] = [[]]
    for line in lines[1:]:
        if line.startswith("──"):
            parts.append([])
        elif not line.startswith(8 * " "):
            parts[-1].append(line.strip())
    message = re.sub(r"^Error parsing (settings\.)?", "", " ".join(parts[0])).removesuffix(".")
    if len(parts) > 1 and parts[1][:1] == ["Argument helptext:"]:  # followed by `--flag TYPE`
        message = re.sub(r"^--[^:]*", parts[1][1], message)
    return f"{message}."


def report_unknown(command: type[Any], prog: str, arguments: Sequence[str], unknown: Sequence[str]) -> NoReturn:
    """Raise `InvalidSettings` with the first unknown flag and the nearest known one."""
    page = io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        parse_known(command, prog, ["--help"])
    flags = set(re.findall(r"--[\w.-]+", page.getvalue()))
    given = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    wrong = next((flag for flag in given if flag not in flags), None)
    if wrong is None:
        raise InvalidSettings(f"unexpected argument {unknown[0]!r}. See {prog} --help.")
    nearest = difflib.get_close_matches(wrong, flags, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else "."
    raise InvalidSettings(f"unknown option {wrong}{hint} See {prog} --help.")


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
