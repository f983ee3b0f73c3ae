"""Sandboxes as data: one YAML file a recipe."""
