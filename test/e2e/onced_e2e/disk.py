"""A small file system in a mount namespace of its own: nothing of it is left when its holder ends, however that happens."""

import os
import pathlib
import subprocess

import pytest

HOLD = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec sleep 600'


class Mounted:
    """A file system at self.folder, as its holder mounts it. hold: shell words that say "mounted" and stay; $1 … are the words."""

    def __init__(self, folder, what, hold, *words):
        self.folder = folder
        self.folder.mkdir()
        self.holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", hold, "sh", *map(str, words),
                                        str(self.folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "mounted\n":
            self.holder.wait(5)
            pytest.skip(f"{what} can not be mounted here: " + self.holder.stderr.read().strip())

    @property
    def prefix(self):
        """Put before a command's words, it sees the file system at self.folder."""
        return ("nsenter", "--mount", "--root", "--target", str(self.holder.pid), "--")

    @property
    def seen(self):
        """The same folder from outside."""
        return pathlib.Path(f"/proc/{self.holder.pid}/root{self.folder}")

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()
        self.holder.stderr.close()


class SmallDisk(Mounted):
    def __init__(self, folder, size):
        if os.geteuid() != 0:
            pytest.skip("needs root: a small file system has to be mounted")
        super().__init__(folder / "disk", "a small file system", HOLD, size)

    def fill(self):
        """To the last byte."""
        with open(self.seen / "filler", "ab", buffering=0) as filler:
            for size in (65536, 4096, 1):
                try:
                    while filler.write(b"x" * size):
                        pass
                except OSError:
                    continue

    def free(self):
        (self.seen / "filler").unlink()

    def read_only(self, on=True):
        """Works while no file of it is open for writing."""
        subprocess.run([*self.prefix, "mount", "-o", "remount," + ("ro" if on else "rw"), str(self.folder)], check=True,
                       timeout=10)
