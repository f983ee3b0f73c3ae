"""Shared by all tests of this repository."""

pytest_plugins = ["pytester"]
