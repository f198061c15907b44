"""The `diffclone` command, also `python -m diffclone`."""

from diffclone.cli.interrupt import leave_on_ctrl_c


def main() -> None:
    """Run the command line. Its imports take seconds, so Ctrl-C is handled before them."""
    leave_on_ctrl_c()
    from diffclone.cli.main import main

    main()


if __name__ == "__main__":
    main()
