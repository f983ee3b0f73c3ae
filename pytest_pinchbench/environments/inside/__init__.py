"""Programs that run in a sandbox: Python 3.8 and up, standard library only."""
