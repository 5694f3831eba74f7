"""Owns `turnscript playground`: the page that shows what turnscript does, from the command line."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from threading import Thread

import click

from turnscript.cli.failures import OK, USAGE, Failed
from turnscript.cli.listening import listening
from turnscript.cli.report import Screen

PORT = 8401
_NEEDS = ("starlette", "uvicorn")
_EPILOG = """\b
Examples:
  turnscript playground
  turnscript playground --port 0 --no-open
  turnscript playground --template models/Qwen3-4B

\b
Exit code:
  0  ended with Ctrl-C
  1  the port is taken
  2  wrong usage, or a package is missing
"""


@click.command(epilog=_EPILOG, short_help="Show conversions, prompts and answers on a page.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    metavar="N",
    help="The port, 0 for any that is free.",
)
@click.option(
    "--template", "places", multiple=True, metavar="PLACE", help="Offer the format of a model's own chat template, too."
)
@click.option("--open/--no-open", "opens", default=None, help="Open it in the browser, or do not (default: if it can).")
def playground(port: int, places: tuple[str, ...], opens: bool | None) -> int:
    """Serve a page on this machine on which one can try what turnscript does.

    Paste a request, an answer, a recorded stream or a transcript: the page shows it in any API or format, what was
    lost and where, its prompt piece by piece, and what a parser makes of a model's text while it comes.
    Nothing leaves this machine, and nothing is kept. Ctrl-C ends it.
    """
    missing = [package for package in _NEEDS if find_spec(package) is None]
    if missing:
        raise Failed(f"the playground needs {', '.join(missing)}", remedy="pip install 'turnscript[serve]'", code=USAGE)
    # Not before we know that their libraries are there.
    from turnscript.playground.server import HOST, offer, serve  # noqa: PLC0415

    for place in places:
        offer(place)

    def ready(address: str) -> None:
        with suppress(OSError):  # a terminal that is gone is no reason not to serve
            Screen().note(f"the playground is at {address}   (Ctrl-C ends it)")
        if _has_screen() if opens is None else opens:
            import webbrowser  # noqa: PLC0415  (no other command needs it)

            Thread(target=webbrowser.open, args=[address], daemon=True).start()  # some take seconds to open

    with listening(HOST, port) as sock:
        serve(sock, ready)
    return OK


def _has_screen() -> bool:
    """Whether a browser would have a window, and not take the terminal."""
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
