"""Screenshots of the console for docs/console.md: `python -m tests.console.screenshots`.

They are made of a cluster in memory with sample data, and written as docs/images/console-NAME.png, with the colors reduced.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from PIL import Image

from pocketmq.testing import PocketMQ
from tests.console import filled
from tests.console.browsing import NARROW, WIDE, Visitor, chromium, served

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
TOTAL_MAX: Final = 600 << 10
_COLORS: Final = 64
SHOTS: Final[dict[str, tuple[str, str, Any, str]]] = {
    "cluster": ("/", "light", WIDE, "en-US"),
    "topics": ("/topics", "dark", WIDE, "en-US"),
    "groups": ("/groups", "light", WIDE, "en-US"),
    "message": (f"/messages?topic={filled.ORDERS}&key=order-7", "light", WIDE, "en-US"),
    "dead-letters": (f"/dead-letters/group?group={filled.GROUP}", "dark", NARROW, "en-US"),
    "delayed": ("/delayed", "dark", WIDE, "en-US"),
    "delayed-phone": ("/delayed", "light", NARROW, "en-US"),
}
"""Each with the address, the color scheme, the size and the language."""


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, PocketMQ(Path(folder)) as server, chromium() as browser:
        filled.fill(server.namesrv_address, server.broker_address)
        with served(server.namesrv_address) as url:
            for name, (path, scheme, size, locale) in SHOTS.items():
                visitor = Visitor(browser, url, color_scheme=scheme, viewport=size, locale=locale)
                visitor.open(path)
                if name == "message":
                    visitor.follow("ORDER0007")
                file = FOLDER / f"console-{name}.png"
                visitor.page.screenshot(path=file)
                reduce_colors(file)
                visitor.close()
    total = sum(file.stat().st_size for file in FOLDER.glob("console-*.png"))
    print(f"{len(SHOTS)} screenshots, {total} bytes")
    sys.exit(total > TOTAL_MAX)


def reduce_colors(file: Path) -> None:
    with Image.open(file) as image:
        reduced = image.convert("RGB").quantize(_COLORS)
    reduced.save(file, optimize=True)


if __name__ == "__main__":
    main()
