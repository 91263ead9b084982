"""`python -m opcheck` is the command `opcheck`."""

from opcheck.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
