"""`python -m diffclone`, the same as the command `diffclone`."""

from diffclone.cli.main import main

if __name__ == "__main__":
    main()
