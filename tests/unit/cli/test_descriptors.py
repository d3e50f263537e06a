from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")

PROGRAM = """
import resource
from proxy.cli.process import raise_file_limit

resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
raise_file_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "then"), [(64, 300, 300), (300, 300, 300)], ids=["raised", "as far as it goes"]
)
def test_a_process_may_open_as_many_files_as_the_system_lets_it(soft: int, hard: int, then: int) -> None:
    program = PROGRAM.format(soft=soft, hard=hard)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(then), str(hard)]
