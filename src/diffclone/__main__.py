"""Run the command line: `python -m diffclone` is the same as `diffclone`."""

from diffclone.cli.main import main

if __name__ == "__main__":
    main()
