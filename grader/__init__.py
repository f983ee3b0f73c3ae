"""How an attempt is graded, inside the sandbox. Standard library only, Python 3.8 and newer.

``main`` reads the order and writes the result; ``automated`` runs a task's checks (in a
process of their own, ``check``); ``judge`` asks a model (``prompt``, ``endpoint``,
``verdict``). Nothing here imports the rest of the project: the package travels into the
sandbox as one zip file.
"""
