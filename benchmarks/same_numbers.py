"""Random run directories: every number is the same string wherever it stands.

    python benchmarks/same_numbers.py [RUNS [FIRST]]

Makes RUNS (500) runs from the seeds that follow FIRST (1,000), and looks for each number in the
terminal's summary, summary.json, summary.md, report.html, JUnit and pytest-json-report, against a
recomputation from the scores. The tests do the same with 30 other seeds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"


def main(runs: int, first: int) -> int:
    sys.path[:0] = [str(TESTS), str(TESTS / "reports")]
    from test_same_numbers import check_numbers

    wrong = []
    for seed in range(first, first + runs):
        with tempfile.TemporaryDirectory() as folder:
            try:
                check_numbers(Path(folder), seed)
            except AssertionError as error:
                wrong.append(seed)
                print(f"seed {seed}: {error}")
    print(f"{runs - len(wrong)} of {runs} runs have the same numbers everywhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    sys.exit(main(*given, *(500, 1_000)[len(given) :]))
