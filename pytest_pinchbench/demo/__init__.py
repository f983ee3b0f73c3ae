"""A small suite and a scripted model: the tool tried out without a key or an account."""
