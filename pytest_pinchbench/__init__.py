"""Measure a language model as the model behind an OpenClaw agent, under pytest."""
