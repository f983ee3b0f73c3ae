"""OpenClaw, both of its eras: installing, configuring, running, reading what it did."""

from pytest_pinchbench.openclaw.harness import OpenClawHarness

__all__ = ["OpenClawHarness"]
