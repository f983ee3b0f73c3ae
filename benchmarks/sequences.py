"""Random sequences of run, kill -9, resume, regrade, merge, damaged files, failing sandboxes, full
disks: nothing valid is lost, or paid for twice.

    python benchmarks/sequences.py [SEQUENCES]

SEQUENCES is 300; the tests have 30 of them (tests/test_random_sequences.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TEST = Path(__file__).parent.parent / "tests" / "test_random_sequences.py"


def main(sequences: str) -> int:
    environ = {**os.environ, "PINCHBENCH_TESTS_SEQUENCES": sequences}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", str(TEST)]
    return subprocess.run(command, cwd=TEST.parent.parent, env=environ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "300"))
