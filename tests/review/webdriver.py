"""A headless Chromium, driven by its driver over the W3C protocol."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
SECONDS = 20
KEYS = {"Left": "\ue012", "Right": "\ue014", "Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004"}


class Browser:
    """A session; downloads go to a folder.

    Args:
        downloads: The folder.
    """

    def __init__(self, downloads: Path) -> None:
        assert BROWSER and DRIVER
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._base = f"http://127.0.0.1:{port}"
        wait_for(lambda: self._answers("GET", "/status"))
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options = {"binary": BROWSER, "args": words}
        always = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
        self._base += (
            f"/session/{self.call('POST', '/session', {'capabilities': {'alwaysMatch': always}})['sessionId']}"
        )
        self.cdp("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(SECONDS)

    def call(self, method: str, path: str, content: Any = None) -> Any:
        body = json.dumps({} if content is None else content).encode() if method == "POST" else None
        request = urllib.request.Request(self._base + path, body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)["value"]

    def _answers(self, method: str, path: str) -> bool:
        try:
            return bool(self.call(method, path))
        except OSError:
            return False

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, address: str, width: int, height: int = 844, dark: bool = False) -> None:
        """Open an address in a window of this size, and wait for the page's script."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
            screenWidth=width,
            screenHeight=height,
        )
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[theme])
        self.call("POST", "/url", {"url": address})
        wait_for(lambda: self.run("return document.body.dataset.ready === 'yes'"))

    def run(self, script: str) -> Any:
        """What a script returns."""
        return self.call("POST", "/execute/sync", {"script": script, "args": []})

    def press(self, *keys: str) -> None:
        """Press keys one after another, wherever the focus is."""
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def requests(self) -> list[str]:
        """Addresses that the browser asked for since this was called last."""
        entries = self.call("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """What the browser's console holds since this was called last."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self) -> str:
        """The window as PNG, in base64."""
        return self.call("GET", "/screenshot")


def wait_for(condition: Callable[[], Any]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
