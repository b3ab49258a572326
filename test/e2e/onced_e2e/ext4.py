"""An ext4 file system in a file, in a mount namespace of its own (disk.py), that can turn read-only under a running process:
`remount,abort` is the kernel's own way to act as if the device had failed."""

import os
import shutil
import subprocess

import pytest

from onced_e2e.disk import Mounted

HOLD = 'mount -o loop "$1" "$2" && echo mounted && exec sleep 600'


class Ext4Disk(Mounted):
    def __init__(self, folder, size="64M"):
        if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
            pytest.skip("needs root and mkfs.ext4: a file system has to be mounted")
        self.image = folder / "ext4.img"
        subprocess.run(["truncate", "-s", size, self.image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True)
        super().__init__(folder / "ext4", "a loop file system", HOLD, self.image)

    def run(self, *command, check=True):
        return subprocess.run([*self.prefix, *map(str, command)], check=check, timeout=20, capture_output=True)

    def fail(self):
        self.run("mount", "-o", "remount,abort", self.folder)

    def read_only(self):
        """While no file is open for writing."""
        self.run("mount", "-o", "remount,ro", self.folder)

    def mount_again(self):
        """After what wrote to it has ended: journal replayed, checked, mounted for writing."""
        self.run("umount", self.folder)
        self.run("e2fsck", "-fp", self.image, check=False)
        self.run("mount", "-o", "loop", self.image, self.folder)

    def close(self):
        self.run("umount", "-l", self.folder, check=False)
        super().close()
