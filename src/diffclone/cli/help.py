"""The help of a command: its options by purpose, in 80 columns.

tyro knows the options, with their types, descriptions and defaults. Its page is read and arranged again: `--help` has
the first sentence about the options that are used most, `--help-all` everything about all of them.
"""

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import final

WIDTH, COLUMN = 80, 27
"""Columns of the page, and of the options on it."""
PAGE_WIDTH = 120
"""Columns of tyro's page. From 130 on it has two columns of boxes."""
GROUPS = {
    "data": "task data demos env options start starts fraction fraction-by action-noise held-out obs-keys "
    "action-keys action-kind action-bounds episode-key filter-key skip-trained where member snapshot "
    "pretrained records source run training weights disturbance max-steps min-return only-successes stop-at-success",
    "method": "method preset guide vary plain acting policy protocol alpha over score threshold window beside",
    "schedule": "budget seeds seed snapshots episodes quick small only plan steps keep",
    "machine": "device precision memory cache workers on needs shard checkpoint-seconds host port token allow-host "
    "allow-origin",
    "output": "out json tensorboard wandb page to again videos every width",
}
"""The options of each group; settings of a method are in "method" or "schedule", other options in "data"."""
MAIN_SETTINGS = (
    *("training.updates", "training.lr", "coefficient", "network.width", "guide.training.updates"),
    *("horizon", "execute", "history"),
)
"""Settings of methods that the short page has."""


@final
@dataclass(frozen=True)
class Option:
    """An option or a positional argument on tyro's page."""

    flags: str
    """"--seeds INT", "--json, --no-json" or "DATA"."""
    text: str
    default: str
    """Empty if there is none."""
    required: bool

    @property
    def name(self) -> str:
        """The name without dashes; of a switch, that of its positive form."""
        return re.split(r"[ ,]", self.usage)[0].lstrip("-")

    @property
    def is_switch(self) -> bool:
        """Whether it has no value."""
        return ", --no-" in self.flags

    @property
    def usage(self) -> str:
        """The flag with its type; of a switch that is off, only the form that turns it on."""
        if self.is_switch:
            return self.flags if self.default == "True" else self.flags.partition(", ")[0]
        return plain_usage(self.flags)

    def description(self, *, short: bool) -> str:
        """Return the description with the default."""
        text = re.split(r"(?<=\.)\s(?=[A-Z`])", self.text)[0] if short else self.text
        default = {"True": "on", "False": ""}.get(self.default, "") if self.is_switch else self.default
        return text if default in ("", "None", "''") else f"{text} (default: {default})"

    def lines(self, *, short: bool) -> list[str]:
        """Return the lines on the page."""
        text = textwrap.wrap(self.description(short=short), WIDTH - COLUMN - 2, break_on_hyphens=False) or [""]
        usage = f"  {self.usage}"
        if len(usage) > COLUMN:
            text.insert(0, "")
        return [f"{usage if not k else '':<{COLUMN}}  {line}".rstrip() for k, line in enumerate(text)]


def plain_usage(flags: str) -> str:
    """Return a flag with its type as tyro shows it, in a form that is easier to read: "--snapshots INT …"."""
    own = re.split(r", (?=--)", flags)[-1]  # tyro puts other names of the same option before its own
    values = own.replace("{None}|", "").replace("{None,", "{")
    return re.sub(r"\[(\S+) \[.*\]\]", r"\1 …", values)


def read_page(page: str) -> Iterator[Option]:
    """Yield the options on tyro's page, `--help` left out.

    An option begins a line of its box, and its description is indented. A box may begin with a text above a rule.
    """
    plain = re.sub(r"\x1b\[[\d;]*m", "", page)
    for box in re.findall(r"^╭.*?^╰", plain, re.DOTALL | re.MULTILINE):
        lines = [line[2:-1].rstrip() for line in box.splitlines()[1:-1]]
        rules = [k for k, line in enumerate(lines) if re.fullmatch("─+", line)]
        found: list[list[str]] = []
        for line in lines[rules[-1] + 1 if rules else 0 :]:
            if line.startswith(" "):
                found[-1].append(line.strip())
            else:
                found.append(re.split(r"\s{2,}", line, maxsplit=1))
        for flags, *text in found:
            if flags != "-h, --help":
                words = " ".join(text)
                required = words.endswith(" (required)")
                about, _, default = words.removesuffix(" (required)").partition(" (default: ")
                yield Option(flags, about, default.removesuffix(")"), required)


def format_help(page: str, prog: str, summary: str, settings: Collection[str], *, short: bool) -> str:
    """Return the help of a command from tyro's page.

    `settings` are the names of the options that set fields of a method.
    """
    options = list(read_page(page))
    positional = [option for option in options if not option.flags.startswith("-")]
    grouped: dict[str, list[Option]] = {group: [] for group in GROUPS}
    left_out = 0
    for option in options:
        setting = "." in option.name or (option.name in settings and known_group(option.name) is None)
        if setting and short and option.name not in MAIN_SETTINGS:
            left_out += 1
        elif option not in positional:
            grouped[find_group(option.name, setting=setting)].append(option)
    required = [option.usage for option in options if option.required or option in positional]
    parts = [" ".join(["usage:", prog, *required, "[options]"]), textwrap.fill(summary, WIDTH, break_on_hyphens=False)]
    parts += ["\n".join(line for option in positional for line in option.lines(short=short))] if positional else []
    for group, found in grouped.items():
        if found:
            parts.append("\n".join([f"{group}:", *(line for option in found for line in option.lines(short=short))]))
    longer = any(option.description(short=True) != option.description(short=False) for option in options)
    hidden = [*(["full descriptions"] * longer), *([f"{left_out} more settings"] * (left_out > 0))]
    if short and hidden:
        parts.append(f"{prog} --help-all shows {' and '.join(hidden)}.")
    return "\n\n".join(parts) + "\n"


def find_group(name: str, *, setting: bool = False) -> str:
    """Return the group of an option."""
    if setting:
        return "schedule" if "training." in name else "method"
    return known_group(name) or "data"


def known_group(name: str) -> str | None:
    """Return the group that lists an option."""
    return next((group for group, names in GROUPS.items() if name in names.split()), None)


def is_help(arguments: Sequence[str]) -> bool:
    """Return whether the arguments request help."""
    return bool({"-h", "--help", "--help-all"} & set(arguments))
