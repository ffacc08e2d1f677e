"""Takes pictures of a command in real terminals: `python tests/tools/screenshots.py FOLDER -- run -n 60 'x = ['`.

The command runs under tmux at 60, 80 and 120 columns, with and without NO_COLOR; what stands there after each of
`--after` seconds becomes one PNG on a dark and one on a light ground. Needs tmux, cairosvg and the font DejaVu Sans
Mono.
"""

import argparse
import io
import shlex
import subprocess
import sys
import time
from pathlib import Path

import cairosvg
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

GROUNDS = {"dark": SVG_EXPORT_THEME, "light": DEFAULT_TERMINAL_THEME}
SESSION = "specdec-screenshots"


def tmux(*words: str) -> str:
    return subprocess.run(["tmux", *words], check=True, capture_output=True, text=True).stdout


def draw(captured: str, columns: int, picture: Path, ground: str) -> None:
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(captured.rstrip("\n")))
    svg = console.export_svg(title=f"{columns} columns", theme=GROUNDS[ground])
    svg = svg.replace("Fira Code", "DejaVu Sans Mono")  # a page fetches its font; cairosvg takes an installed one
    cairosvg.svg2png(svg.encode(), write_to=str(picture), scale=1.5 if columns < 100 else 1.0)


def shoot(command: str, columns: int, rows: int, coloured: bool, after: list[float], folder: Path) -> None:
    colour = "" if coloured else "NO_COLOR=1 "
    tmux("new-session", "-d", "-s", SESSION, "-x", str(columns), "-y", str(rows), f"PS1='$ ' {colour}bash --norc")
    try:
        tmux("send-keys", "-t", SESSION, "clear; " + command, "Enter")
        began = time.monotonic()
        for seconds in sorted(after):
            time.sleep(max(began + seconds - time.monotonic(), 0))
            captured = tmux("capture-pane", "-e", "-p", "-t", SESSION)
            for ground in GROUNDS if coloured else ("dark",):
                name = f"{columns}-{ground if coloured else 'no-colour'}-{seconds:g}s.png"
                draw(captured, columns, folder / name, ground)
    finally:
        tmux("kill-session", "-t", SESSION)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--columns", type=int, nargs="+", default=[60, 80, 120])
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--after", type=float, nargs="+", default=[4.0, 12.0])
    parser.add_argument("command", nargs="+", help="what follows `specdec`")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    command = shlex.join([str(Path(sys.executable).with_name("specdec")), *asked.command])
    for columns in asked.columns:
        for coloured in (True, False):
            shoot(command, columns, asked.rows, coloured, asked.after, asked.folder)
    print("\n".join(str(picture) for picture in sorted(asked.folder.glob("*.png"))))


main()
