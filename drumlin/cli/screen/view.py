"""What the person at the keyboard has chosen to see, and what each key changes."""

from __future__ import annotations

from dataclasses import dataclass, field

PANES = ("hosts", "nodes", "failures")


@dataclass
class View:
    """Which list is shown from which row on; whether the picture stands still, and whether it is the page of help."""

    pane: str = PANES[0]
    held: bool = False
    help: bool = False
    over: bool = False
    first_rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PANES, 0))

    @property
    def first_row(self) -> int:
        return self.first_rows[self.pane]

    def press(self, key: str, rows: int, shown: int) -> None:
        """Do what a key stands for. The list has so many rows, of which so many fit on the screen."""
        moves = {"up": -1, "down": 1, "page up": -shown, "page down": shown, " ": shown, "home": -rows, "end": rows}
        if self.help and key not in ("q", "Q"):
            self.help = False
        elif key in ("q", "Q"):
            self.over = True
        elif key in ("p", "P"):
            self.held = not self.held
        elif key in ("?", "h"):
            self.help = True
        elif key in ("tab", "back tab"):
            step = 1 if key == "tab" else -1
            self.pane = PANES[(PANES.index(self.pane) + step) % len(PANES)]
        elif key in tuple("123"):
            self.pane = PANES[int(key) - 1]
        elif key in moves:
            self.first_rows[self.pane] = max(0, min(self.first_row + moves[key], rows - shown))
