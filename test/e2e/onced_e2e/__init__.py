"""Harness of the end-to-end tests: real processes, real sockets, real signals; judged by the fake provider's own count.

    binary.py    where the program under test is
    process.py   a child with a JSON ready line, its log, its signals
    provider.py  the fault-injecting provider and its truth
    onced.py     the daemon with a registry file and a ledger of its own
    client.py    HTTP with kept connections, time-outs and concurrent callers
    registry.py  registry files as Python values
    disk.py      a small file system that can be filled
"""
