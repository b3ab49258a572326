"""Waiting for something instead of sleeping; callers at the same time."""

import threading
import time


def wait_until(check, seconds=10, every=0.02, what=None):
    """The first true value of check(). AssertionError after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end, f"{what or 'it'} did not happen within {seconds} s (last: {value!r})"
        time.sleep(every)


class Background:
    """One call in a thread of its own."""

    def __init__(self, function, *args, **named):
        self.value = self.error = None
        self.thread = threading.Thread(target=self._run, args=(function, args, named), daemon=True)
        self.thread.start()

    def _run(self, function, args, named):
        try:
            self.value = function(*args, **named)
        except BaseException as error:  # noqa: BLE001 - given to whoever asks for the result
            self.error = error

    def running(self):
        return self.thread.is_alive()

    def result(self, seconds=30):
        self.thread.join(seconds)
        assert not self.thread.is_alive(), f"no result within {seconds} s"
        if self.error:
            raise self.error
        return self.value


def together(functions, seconds=60):
    """Calls all of them at once; their results in order."""
    gate = threading.Barrier(len(functions))

    def passing(function):
        gate.wait(10)
        return function()

    running = [Background(passing, function) for function in functions]
    return [each.result(seconds) for each in running]
