"""The hooks by which pytest runs PinchBench; each calls a session object."""
