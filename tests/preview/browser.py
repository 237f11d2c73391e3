"""Pages in a real browser: what loads, what fails, whether anything sticks out."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--virtual-time-budget=15000", "--dump-dom",
)  # fmt: skip
_WATCH = """<script>
const failures = [];
addEventListener("error", (event) => failures.push(String(event.message || event.target)), true);
addEventListener("securitypolicyviolation", (event) => failures.push(event.blockedURI));
</script>"""
# Drawing a picture decodes it at once, which `Image.decode` leaves to another thread.
_RESULT = """<script>
addEventListener("load", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  const pictures = [...document.images].filter((one) => one.getAttribute("src"));
  const context = document.createElement("canvas").getContext("2d");
  for (const one of pictures) {
    if (!one.naturalWidth) failures.push(one.alt);
    else context.drawImage(one, 0, 0, 8, 8);
  }
  document.documentElement.dataset.result = JSON.stringify({
    pictures: pictures.length, failures,
    sticksOut: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  });
});
</script>"""


def look_at(page: Path, folder: Path, *, width: int, height: int) -> dict[str, Any]:
    """Open a page from the file system and say what happened.

    Skips the test where there is no Chromium.
    """
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    text = page.read_text().replace('loading="lazy"', 'loading="eager"')
    body = re.search(r"<body[^>]*>", text)
    assert body is not None
    watched = folder / f"watched-{width}.html"
    watched.write_text(
        text.replace(body[0], body[0] + _WATCH, 1).replace("</body>", _RESULT + "</body>", 1)
    )
    command = [
        browser, *_FLAGS, f"--window-size={width},{height}",
        f"--user-data-dir={folder / f'profile-{width}'}", watched.as_uri(),
    ]  # fmt: skip
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    result = re.search(r'data-result="([^"]*)"', shown.stdout)
    assert result is not None, shown.stderr[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(result[1]))
    return found
