"""`python -m lucius`: the command line.

Python puts the current folder in front of all libraries; it is taken out before anything is imported.
"""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]
    from lucius.cli.main import main

    main(prog_name="lucius")
