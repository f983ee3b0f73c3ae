"""The redactor. The grader has it, since the grader travels into sandboxes alone."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # where a type checker finds the package that is installed as pytest_pinchbench.grader
    from grader.redact import MASK, Redactor
else:
    from pytest_pinchbench.grader.redact import MASK, Redactor

__all__ = ["MASK", "Redactor"]
