"""What a flow run in another process does, as its output and the Prefect server tell."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

#: Generous: the machine may be busy with other tests.
LIMIT_S = 180.0


class FlowProcess:
    """A `tabletune flows run` process whose log is read as it comes."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._new = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "FlowProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def wait_for(self, *texts: str, limit_s: float = LIMIT_S) -> str:
        """The first line of the log with all of `texts`."""
        end_s = time.monotonic() + limit_s
        with self._new:
            while True:
                for line in self.lines:
                    if all(text in line for text in texts):
                        return line
                left_s = end_s - time.monotonic()
                assert left_s > 0, f"waited in vain for {texts!r}:\n" + self.log()
                assert self.process.poll() is None or self._reader.is_alive(), self.log()
                self._new.wait(min(left_s, 1.0))

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Its exit status. One that does not end is told with what it is doing, as far as
        PYTHONFAULTHANDLER is set."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait(LIMIT_S)
            self._reader.join(10)
            raise AssertionError(f"not ended within {limit_s:g} s:\n{self.log(200)}") from None

    def result(self) -> dict[str, Any]:
        """The JSON object that it printed, once it has ended well."""
        import json

        output = self.process.stdout
        assert output is not None
        text = output.read()
        self.process.wait(LIMIT_S)
        self._reader.join(10)
        assert self.process.returncode == 0, self.log()
        return json.loads(text)

    def log(self, lines: int = 60) -> str:
        return "".join(self.lines[-lines:])

    def _read(self) -> None:
        errors = self.process.stderr
        assert errors is not None
        for line in errors:
            with self._new:
                self.lines.append(line)
                self._new.notify_all()


def wait_until(reached: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    """The first true value of `reached`."""
    end_s = time.monotonic() + limit_s
    while True:
        found = reached()
        if found:
            return found
        assert time.monotonic() < end_s, f"waited in vain until {what}"
        time.sleep(0.3)
