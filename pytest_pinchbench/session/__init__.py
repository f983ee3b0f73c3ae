"""One pytest session that runs PinchBench: hooks, items, fixtures and their shared state."""
