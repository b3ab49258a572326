"""Run with ONCED_BIN=path/to/onced (default: the newest build in a folder of the usual name). No third-party packages but
pytest; every process listens on a free port of 127.0.0.1 and writes below pytest's temporary folder."""

import os

import pytest

from onced_e2e import binary, registry
from onced_e2e.disk import SmallDisk
from onced_e2e.onced import Onced
from onced_e2e.provider import Provider

if binary.find():  # test_fake_provider.py looks here
    os.environ.setdefault("ONCED", str(binary.find()))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Logs of the processes of a failing test are shown with it."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for process in getattr(item, "onced_processes", ()):
            report.sections.append((f"log of {process.name}", process.text()[-20000:]))


@pytest.fixture
def processes(request):
    request.node.onced_processes = []
    return request.node.onced_processes


@pytest.fixture
def provider(tmp_path, processes):
    provider = Provider(tmp_path).start()
    processes.append(provider.process)
    yield provider
    provider.stop()
    assert not provider.process.findings()


@pytest.fixture
def small_disk(tmp_path):
    disks = []

    def make(size="4m"):
        disks.append(SmallDisk(tmp_path, size))
        return disks[-1]

    yield make
    for disk in disks:
        disk.close()


class World:
    """One provider, and the daemons that a test starts before it."""

    def __init__(self, folder, provider, processes, timeout=registry.BRIEF):
        self.folder = folder
        self.provider = provider
        self.processes = processes
        self.timeout = timeout
        self.daemons = []

    def file(self, tools, **more):
        return registry.file(self.provider.url, tools, **{"timeout": self.timeout, **more})

    def prepare(self, tools, ledger=None, prefix=(), **more):
        """A daemon with these tools, not started yet."""
        folder = self.folder / f"onced-{len(self.daemons) + 1}"
        folder.mkdir()
        onced = Onced(folder, ledger, prefix)
        onced.configure(self.file(tools, **more))
        self.daemons.append(onced)
        self.processes.append(onced.process)
        return onced

    def onced(self, tools, **more):
        return self.prepare(tools, **more).start()

    def stop(self):
        if self.provider.process.alive():
            self.provider.reset()
        for onced in self.daemons:
            if onced.process.alive():
                onced.stop()


@pytest.fixture
def world(request, tmp_path, provider, processes):
    timeout = request.node.get_closest_marker("provider_timeout")
    world = World(tmp_path, provider, processes, *(timeout.args if timeout else ()))
    yield world
    try:
        world.stop()
    finally:
        for onced in world.daemons:
            if onced.process.alive():
                onced.kill()
    for onced in world.daemons:
        findings = onced.process.findings()
        assert not findings, findings
