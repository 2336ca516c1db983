"""Console of all commands. Texts of messages, stores and servers can neither control the terminal nor act as markup."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from pocketmq.runtime.peer_text import printable


class Printer(Console):
    """A `rich` console on which only rich itself, by styles and progress bars, writes escape sequences."""

    def __init__(self, *, pipe_width: int | None = None, **settings: Any) -> None:
        """`pipe_width`: width of lines if this is not a terminal. `settings`: those of Console."""
        super().__init__(highlight=False, markup=False, emoji=False, **settings)
        if pipe_width is not None and not self.is_terminal:
            self.width = pipe_width

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable(text), **settings)  # before its width is measured

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
