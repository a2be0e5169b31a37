"""A headless Chromium for tests, driven by ChromeDriver over plain HTTP, with no other package."""

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
    ),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--allow-file-access-from-files"),
)


def missing() -> str:
    """Return why there is no browser here; empty where there is one."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        return "Chromium is not installed"
    return "" if shutil.which("chromedriver") else "ChromeDriver is not installed"


class Browser:
    """A page in a browser."""

    def __init__(self, address: str, session: str) -> None:
        self._base = f"{address}/session/{session}"

    def open(self, path: Path) -> None:
        self._post("url", {"url": path.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script returns, which may be a promise."""
        return self._post("execute/sync", {"script": script, "args": list(arguments)})

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self._post("goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, height: int) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def theme(self, name: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        self.cdp("Emulation.setEmulatedMedia", media="", features=[feature])

    def messages(self) -> list[str]:
        """Return what the page wrote to the console since the last look."""
        return [entry["message"] for entry in self._post("se/log", {"type": "browser"})]

    def picture(self, path: Path, height: int | None = None, top: int = 0) -> None:
        """Write a picture of the page, or of a part of it."""
        width = self.run("return document.documentElement.clientWidth")
        whole = self.run("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": top, "width": width, "height": height or whole - top, "scale": 1}
        found = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        request = urllib.request.Request(self._base, method="DELETE")
        urllib.request.urlopen(request, timeout=60).close()

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return _post(f"{self._base}/{path}", body)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with a new profile; end it with all its processes."""
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        port = next(
            line.rsplit("port ", 1)[1].strip().rstrip(".")
            for line in driver.stdout or ()
            if "successfully on port" in line
        )
        address = f"http://127.0.0.1:{port}"
        options = {"binary": binary, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = _post(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
        page = Browser(address, made["sessionId"])
        try:
            yield page
        finally:
            page.close()
    finally:
        driver.terminate()
        driver.wait()
        if driver.stdout:
            driver.stdout.close()


def _post(url: str, body: dict[str, Any]) -> Any:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(json.load(error)["value"]["message"]) from None
