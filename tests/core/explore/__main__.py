"""`python -m tests.core.explore [--deep]`: walk the configurations and print what was found."""

import argparse
import sys

from tests.core.explore.configurations import DEEP, DEFAULT
from tests.core.explore.walk import Violation, walk


def main() -> int:
    parser = argparse.ArgumentParser(prog="explore", description=__doc__)
    parser.add_argument("--deep", action="store_true", help="larger worlds; takes many minutes")
    deep: bool = parser.parse_args().deep
    for configuration in (*DEFAULT, *DEEP) if deep else DEFAULT:
        try:
            print(walk(configuration), flush=True)
        except Violation as violation:
            print(f"{configuration.name}\n{violation}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
