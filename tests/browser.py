"""A headless Chromium, driven over the pipe of its DevTools protocol: the standard library is enough."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60.0
"""Seconds that an answer may take."""


def find_browser() -> str | None:
    """Where it is: $DIFFCLONE_CHROMIUM, or a name on the path."""
    named = os.environ.get("DIFFCLONE_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@final
class Browser:
    """One page. Messages are JSON with a zero byte after each."""

    def __init__(self, reads: int, writes: int):
        self._reads, self._writes = reads, writes
        self._left, self._count = b"", 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a request; events on the way are kept."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._count:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            assert select.select([self._reads], [], [], PATIENCE)[0], "the browser does not answer"
            found = os.read(self._reads, 1 << 16)
            assert found, "the browser has gone"
            self._left += found
        message, self._left = self._left.split(b"\0", 1)
        return json.loads(message)

    def open(self, page: Path, *, width: int, height: int, scheme: str) -> None:
        """Show a file as a screen of this size would, in light or dark."""
        self.events.clear()
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", features=[feature])
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.ask("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, down and up."""
        for kind in ("keyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13}[key]
            extra = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **extra)

    def screenshot(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browsing(binary: str) -> Generator[Browser, None, None]:
    """A browser of its own, with a profile that is thrown away."""
    ours_out, theirs_in = high_pipe()
    theirs_out, ours_in = high_pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={profile}"]

        def take_its_ends() -> None:  # Chromium reads from 3 and writes to 4
            os.dup2(theirs_out, 3)
            os.dup2(theirs_in, 4)

        process = subprocess.Popen(
            [binary, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=take_its_ends,
            pass_fds=(3, 4),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_out, ours_in)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(ours_out)
            os.close(ours_in)


def high_pipe() -> tuple[int, int]:
    """Its two ends, away from 3 and 4."""
    ends = os.pipe()
    reads, writes = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return reads, writes
