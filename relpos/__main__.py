"""`python -m relpos` is the command `relpos`."""

import sys

from relpos.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
