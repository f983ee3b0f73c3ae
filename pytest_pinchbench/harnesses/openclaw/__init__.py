"""OpenClaw, both of its eras: installing, configuring, running, reading what it did."""

from pytest_pinchbench.harnesses.openclaw.harness import OpenClawHarness

__all__ = ["OpenClawHarness"]
