"""The model relay: what passes between an agent and its model, seen and timed first-hand.

*Endpoint*: a model's URL, key and protocol. *Grant*: the right of one attempt (and purpose) to
ask an endpoint, known by its token, with the attempt's clock. *Exchange*: one request of a
grant and its answer. The relay is one process a run, beside pytest, on a loopback port.
"""
