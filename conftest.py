"""Shared by all tests of this repository.

No ``pytest_plugins`` here: the demo's suite lies in this checkout, and pytest refuses that
variable in a conftest that is not at the root of the run. ``-p pytester`` is in pyproject.toml.
"""
