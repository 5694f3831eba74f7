"""Owns a real browser without a window, and the playground's page in it: what is there, as who looks at it sees it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DRIVER = "chromedriver"
HOW_TO_GET_ONE = (
    "these tests need a browser: apt-get install chromium chromium-driver, or put Chrome and chromedriver in PATH"
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
_PATIENCE = 20


def _program(*names: str) -> str:
    found = next((path for path in map(shutil.which, names) if path is not None), None)
    assert found is not None, f"{names[0]} is not there, and these tests need a browser: {HOW_TO_GET_ONE}"
    return found


@contextmanager
def browser(folder: Path) -> Iterator[Chrome]:
    """A browser that nobody has used, with its profile in a folder."""
    options = ChromeOptions()
    options.binary_location = _program(*NAMES)
    for flag in (*_FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(_program(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """The page at an address."""

    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver = driver
        self.address = address

    def open(self, link: str = "") -> None:
        """Open it anew, and wait until it shows all. `link`: what stands behind the address, or a whole one."""
        self.driver.get("about:blank")
        self.driver.get(link if link.startswith("http") else f"{self.address}/{link}")
        self.settle()

    def settle(self) -> None:
        """Wait until it shows what was asked for last."""
        wait: WebDriverWait[Chrome] = WebDriverWait(self.driver, _PATIENCE, poll_frequency=0.02)
        wait.until(lambda driver: driver.execute_script("return document.body.ariaBusy !== 'true'"))

    def until(self, script: str) -> None:
        """Wait until an expression is true."""
        wait: WebDriverWait[Chrome] = WebDriverWait(self.driver, _PATIENCE, poll_frequency=0.02)
        wait.until(lambda _: self.value(script))

    def value(self, script: str) -> Any:
        """What an expression gives in the page; comments may stand before it."""
        return self.driver.execute_script(f"return (\n{script}\n)")

    def find(self, selector: str) -> WebElement:
        """The first element of a selector."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """All of them."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text of an element, as it is in the page."""
        return str(self.find(selector).get_property("textContent"))

    def see(self, what: str) -> None:
        """Choose one of the three things to see."""
        self.find(f"#tab-{what}").click()
        self.settle()

    def choose(self, selector: str, value: str) -> None:
        """Choose from a list."""
        Select(self.find(selector)).select_by_value(value)
        self.settle()

    def write(self, selector: str, text: str) -> None:
        """Put a text in place of what is there, as one who pastes it does."""
        script = (
            "const [box, text] = arguments; box.focus(); box.select(); document.execCommand('insertText', false, text)"
        )
        self.driver.execute_script(script, self.find(selector), text)
        self.settle()

    def point_at(self, element: WebElement) -> None:
        """Move the pointer there."""
        ActionChains(self.driver).move_to_element(element).perform()

    def look(self, scheme: str = "light", width: int = 1280) -> None:
        """See it as a device does: with a dark or light scheme, and a window of some width. Nothing changes slowly."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        preferences = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in preferences.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def complaints(self) -> list[str]:
        """What the browser has to say against the page since it was asked last."""
        log: list[dict[str, str]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in log if entry["level"] != "INFO"]
