"""Finds the program: ONCED_BIN or ONCED, else the newest of the usual build folders."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILDS = ("build", "build-debug", "build-release", "builddir")


def find():
    given = os.environ.get("ONCED_BIN") or os.environ.get("ONCED")
    if given:
        path = pathlib.Path(given).resolve()
        return path if path.is_file() else None
    built = [ROOT / name / "src/cli/onced" for name in BUILDS]
    built = [path for path in built if path.is_file()]
    return max(built, key=lambda path: path.stat().st_mtime) if built else None


def onced():
    path = find()
    if not path:
        pytest.skip("no onced: build it, or name it with ONCED_BIN")
    return str(path)


def built(name):
    """Another file of its build folder."""
    folder = os.environ.get("ONCED_BUILD") or pathlib.Path(onced()).parents[2]
    path = pathlib.Path(folder).resolve() / name
    if not path.is_file():
        pytest.skip(f"no {path}: build the tests (meson option tests)")
    return path
