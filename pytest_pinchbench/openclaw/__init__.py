"""OpenClaw, both of its eras: installing, configuring, running, reading what it did."""
