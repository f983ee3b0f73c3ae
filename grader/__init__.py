"""How an attempt is graded, inside the sandbox. Standard library only, Python 3.8 and newer."""
