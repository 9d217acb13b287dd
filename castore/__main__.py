"""`python -m castore`: the same as the command `castore`."""

from __future__ import annotations

import sys

from castore.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
