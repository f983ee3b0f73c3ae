"""Measure a language model as the model behind an OpenClaw agent, under pytest."""

import os

# In a source checkout the grader and the recipes stand beside this package, and python -m pytest
# takes the checkout before what is installed.
if not os.path.isdir(os.path.join(__path__[0], "grader")):
    __path__.append(os.path.dirname(__path__[0]))
