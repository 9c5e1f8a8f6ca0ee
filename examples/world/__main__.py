"""The command: ``python -m examples.world --port 8900 --ledger PATH``."""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.world.server import serving
from examples.world.switches import Switches
from examples.world.tables import ForeignLedgerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal to stop; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.world",
        description="A small world for sagas to act on, with a ledger of its own.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=8900, help="0 picks one; default: %(default)s")
    parser.add_argument("--ledger", type=Path, required=True, help="SQLite file; made if missing")
    parser.add_argument("--switches", type=Path, help="JSON file with the switches to begin with")
    parser.add_argument(
        "--calls-anywhere", action="store_true", help="call back any URL, not only on this machine"
    )
    options = parser.parse_args(arguments)
    switches = Switches()
    if options.switches is not None:
        try:
            switches.replace(json.loads(options.switches.read_bytes()))
        except (OSError, ValueError) as error:
            parser.error(f"--switches {options.switches}: {error}")
    try:
        asyncio.run(_serve(options, switches))
    except ForeignLedgerError as error:
        parser.error(f"--ledger {error}")
    except OSError as error:
        sys.stderr.write(f"cannot serve on {options.host}:{options.port}: {error}\n")
        return 1
    return 0


async def _serve(options: argparse.Namespace, switches: Switches) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(
        ledger=options.ledger,
        host=options.host,
        port=options.port,
        switches=switches,
        calls_anywhere=options.calls_anywhere,
    ) as world:
        sys.stdout.write(f"world listening on {world.url}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
