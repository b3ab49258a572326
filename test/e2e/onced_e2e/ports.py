"""Ports for servers that stop and start again."""

import random
import socket


def free_port():
    """Below the range that outgoing connections take theirs from: it has to stay free while the server is down."""
    for _ in range(1000):
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise AssertionError("no free port")
