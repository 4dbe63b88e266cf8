"""`python -m lockstep`: the command line of Lockstep, in the Node that the package uses."""

import subprocess
import sys

from ._process import node, program

if __name__ == "__main__":
    sys.exit(subprocess.call([node(), str(program()), *sys.argv[1:]]))
