"""Import of a server's modules without those that only interactive use needs."""

import subprocess
import sys

PROGRAM = """
import gc, sys
from pocketmq.runtime.command_line.server_arguments import many_imports
with many_imports():
    assert not gc.isenabled()
    from pocketmq.broker.broker import Broker
print(sorted({"bdb", "cmd", "pdb", "numpy._core._add_newdocs"} & sys.modules.keys()), gc.isenabled())
import pdb
print(pdb.Pdb.__name__)
"""


def test_server_does_not_load_a_debugger_which_can_be_imported_later():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[] True", "Pdb"]
