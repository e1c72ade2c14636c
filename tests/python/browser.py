"""A page in headless Chromium, spoken to through a pipe (the DevTools protocol), and what a person sees of it."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATIENCE = 60  # seconds


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, profile: Path):
        ours, theirs = os.pipe(), os.pipe()  # what it reads, and what it writes

        def pipes():  # it takes commands from descriptor 3 and answers on 4
            read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (ours[0], theirs[1]))
            os.dup2(read, 3), os.dup2(write, 4)
            os.close(read), os.close(write)

        self.process = subprocess.Popen(
            [
                *(chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
                *("--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={profile}", "about:blank"),
            ],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(ours[0]), os.close(theirs[1])
        self.commands, self.answers = ours[1], theirs[0]
        self.count, self.rest, self.events = 0, b"", []

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.commands), os.close(self.answers)

    def _message(self) -> dict:
        while b"\0" not in self.rest:
            ready = select.select([self.answers], [], [], PATIENCE)[0]
            part = os.read(self.answers, 1 << 20) if ready else b""
            assert part, "Chromium does not answer"
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method: str, session: str | None = None, **params) -> dict:
        self.count += 1
        message = {"id": self.count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        command = json.dumps(message).encode() + b"\0"
        while command:
            command = command[os.write(self.commands, command) :]
        while (answer := self._message()).get("id") != self.count:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def open(self, file: Path | str, width: int = 1200, dark: bool = False, drawn: str = "footer") -> "Tab":
        """A file, or an address. Waits until there is an element that `drawn` selects."""
        return Tab(self, file, width, dark, drawn)


class Tab:
    def __init__(self, browser: Browser, file: Path | str, width: int, dark: bool, drawn: str):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=file if isinstance(file, str) else file.absolute().as_uri())
        self.until(f"document.readyState === 'complete' && !!document.querySelector('{drawn}')")
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # charts are drawn

    def call(self, method: str, **params) -> dict:
        return self.browser.call(method, self.session, **params)

    def run(self, script: str):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, condition: str):
        deadline = time.monotonic() + PATIENCE
        while not self.run(condition):
            assert time.monotonic() < deadline, self.errors()
            time.sleep(0.02)

    def picture(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def _events(self, *methods) -> list:
        return [e for e in self.browser.events if e.get("sessionId") == self.session and e["method"] in methods]

    def errors(self) -> list:
        """What the page's script threw, and what the browser complains about."""
        return self._events("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")

    def requests(self) -> list:
        return [e["params"]["request"]["url"] for e in self._events("Network.requestWillBeSent")]
