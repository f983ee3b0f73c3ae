"""Skill checkouts: task files, their format, and which of them a run selects."""
