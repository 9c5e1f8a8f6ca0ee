"""Three trips. ``make demo`` runs this; it exits with 1 if the ledger shows that anything is wrong.

1. A trip that completes.
2. A trip whose charge is declined: everything before it is undone, in reverse.
3. A trip during which the service is killed (SIGKILL) after a call has left and before its answer
   has come. It is started again, finishes the trip, and calls nothing twice with effect.

The tools are another process with a ledger of its own. At the end it is read as evidence: what was
called how often, with which keys, and what is left over.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.live import Live

from examples.demo.clients import Clients, Json
from examples.demo.processes import Process, StartFailed
from examples.demo.view import draw_ledger, draw_saga
from examples.world import Expectation, Ledger, judge

LEASE_SECONDS = 2
TRIP_SECONDS_MAX = 40.0
REST = {"completed", "compensated", "stuck"}


class Demo:
    """The processes, the screen, and what each trip should end as."""

    def __init__(self, console: Console, clients: Clients, service: Process) -> None:
        self._console = console
        self._clients = clients
        self._service = service
        self.expected: dict[str, Expectation] = {}
        self.names: dict[str, str] = {}
        self.failures: list[str] = []

    async def run(self) -> None:
        """Play the three trips."""
        self._title("1", "A trip that completes: flight, hotel, charge.")
        await self._trip("1", "completed", card="4242424242424242")
        self._title("2", "A trip whose charge is declined: what was booked is undone in reverse.")
        await self._trip("2", "compensated", card="declined")
        self._title("3", "A trip during which the service is killed, just when a call is out.")
        await self._clients.set_switches(
            [{"match": {"path": "/hotels"}, "times": 1, "do": {"hold": "after", "name": "kill"}}]
        )
        await self._trip("3", "completed", card="4242424242424242", meanwhile=self._kill())

    async def _trip(
        self,
        name: str,
        expected: Expectation,
        *,
        card: str,
        meanwhile: Awaitable[None] | None = None,
    ) -> None:
        """Start one trip and draw it until it rests."""
        self._notes: list[str] = []
        trip = {"city": "Lisbon", "card": card, "amount": 840}
        saga = await self._clients.start_saga("book_trip", trip, key=str(uuid.uuid4()))
        self.expected[saga["id"]] = expected
        self.names[saga["id"]] = name
        async with asyncio.TaskGroup() as group:
            if meanwhile is not None:
                group.create_task(self._follow(meanwhile))
            saga = await self._draw(saga)
        if saga["status"] != expected:
            self.failures.append(f"trip {name} is {saga['status']}, not {expected}")

    async def _follow(self, meanwhile: Awaitable[None]) -> None:
        await meanwhile

    async def _draw(self, saga: Json) -> Json:
        deadline = time.monotonic() + TRIP_SECONDS_MAX
        with Live(console=self._console, refresh_per_second=20, transient=False) as live:
            while saga["status"] not in REST and time.monotonic() < deadline:
                live.update(draw_saga(saga, self._notes))
                await asyncio.sleep(0.05)
                saga = await self._clients.get_saga(saga["id"]) or saga
            live.update(draw_saga(saga, self._notes))
        self._console.print()
        return saga

    async def _kill(self) -> None:
        """Kill the service while the world holds its request, and start it again."""
        await self._clients.wait_held("kill")
        self._notes.append("the hotel is booked, its answer not yet sent ...")
        pid = self._service.pid
        await self._service.kill()
        self._notes.append(f"kill -9 {pid}: the service is gone; nobody knows what became of it")
        await self._clients.release("kill")
        killed_at = time.monotonic()
        await self._service.start()
        self._clients.service_url = self._service.url
        self._notes.append(
            f"started again as {self._service.pid} ({time.monotonic() - killed_at:.1f} s later); "
            "it sends the hotel's call again, with the same key"
        )

    def _title(self, number: str, text: str) -> None:
        self._console.print(f"[bold]Trip {number}.[/bold] {text}\n")


async def main(console: Console) -> int:
    """Set the stage, play, and judge; returns the exit code."""
    begun_at = time.monotonic()
    place = _make_place()
    world = Process(
        "the world",
        ["-m", "examples.world", "--port", "0", "--ledger", str(place / "world.db")],
        log=place / "world.log",
        environment={},
    )
    service: Process | None = None
    try:
        console.print("Starting the tools, and the service with its own Postgres ...\n")
        await world.start()
        service = _service(place, world_url=world.url)
        await service.start()
        async with aiohttp.ClientSession() as session:
            clients = Clients(session, world_url=world.url)
            clients.service_url = service.url
            demo = Demo(console, clients, service)
            await demo.run()
            ledger = Ledger.from_json(await clients.ledger_text())
    except (StartFailed, RuntimeError) as error:
        console.print(f"[bold red]The demo could not be played.[/] {error}", highlight=False)
        return 1
    finally:
        if service is not None:
            await service.stop()
        await world.stop()
        shutil.rmtree(place, ignore_errors=True)
    return _judge(console, demo, ledger, seconds=time.monotonic() - begun_at)


def _make_place() -> Path:
    place = Path(tempfile.mkdtemp(prefix="amends-demo-"))
    # As root, Postgres runs as another user, and must reach its directory.
    place.chmod(0o755)
    return place


def _service(place: Path, *, world_url: str) -> Process:
    return Process(
        "the service",
        ["-m", "app", "serve"],
        log=place / "service.log",
        environment={
            "AMENDS_HOST": "127.0.0.1",
            "AMENDS_PORT": "0",
            "AMENDS_DATA_DIR": str(place / "data"),
            "AMENDS_DATABASE_URL": "",
            "AMENDS_API_KEYS": "",
            "AMENDS_SAGAS_DIR": str(Path(__file__).resolve().parents[2] / "sagas"),
            "AMENDS_LEASE_SECONDS": str(LEASE_SECONDS),
            "AMENDS_VARS": json.dumps({"world": world_url}),
        },
    )


def _judge(console: Console, demo: Demo, ledger: Ledger, *, seconds: float) -> int:
    """Print the evidence, and what is wrong with it."""
    console.print(draw_ledger(ledger, demo.names))
    violations = [*demo.failures, *(str(v) for v in judge(ledger, demo.expected))]
    if violations:
        console.print("\n[bold red]This must not be:[/]")
        for violation in violations:
            console.print(f"  {violation}", highlight=False)
        return 1
    console.print(
        "\n[bold green]Sound.[/] Each effect came about once; of the declined trip nothing is "
        "left, undone in reverse; the killed one was finished with the keys it had.\n"
        f"({seconds:.0f} s)",
        highlight=False,
    )
    return 0


if __name__ == "__main__":
    # A pipe or a CI log has no size of its own.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 110
    sys.exit(asyncio.run(main(Console(width=width))))
