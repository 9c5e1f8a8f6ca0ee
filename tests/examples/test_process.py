"""The command: the world as a process, killed and started again."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

import examples.world
from examples.world import judge, read_ledger
from tests.examples.client import Client, Reply, client_of
from tests.examples.listener import Listener
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
README = Path(examples.world.__file__).with_name("README.md")
ROME = {"city": "Rome"}
CHARGE = {"card": "4242", "amount": 90}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A world that runs as a process, and a client of it."""

    process: asyncio.subprocess.Process
    client: Client

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return await self.process.wait()


@asynccontextmanager
async def process(ledger: Path, *options: str) -> AsyncIterator[Running]:
    """Run the command; what still runs in the end is killed."""
    command = ["-m", "examples.world", "--port", "0", "--ledger", str(ledger), *options]
    started = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        assert started.stdout is not None
        line = (await asyncio.wait_for(started.stdout.readline(), timeout=20)).decode()
        said, _, url = line.rstrip("\n").rpartition(" ")
        assert said == "world listening on"
        async with client_of(url) as client:
            yield Running(process=started, client=client)
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def test_keys_and_effects_survive_a_kill(ledger_path: Path) -> None:
    """After SIGKILL the same key replays, barriers stand, and ids go on where they were."""
    async with process(ledger_path) as first:
        made = await first.client.send("POST", "/flights", ROME, key="k1")
        await first.client.send("POST", "/refunds", {"charge_key": "k9"}, key="k2")
        before = await first.client.ledger()
        assert await first.end(signal.SIGKILL) == -signal.SIGKILL

    assert read_ledger(ledger_path) == before
    async with process(ledger_path) as second:
        again = await second.client.send("POST", "/flights", ROME, key="k1")
        other = await second.client.send("POST", "/flights", ROME, key="k3")
        barred = await second.client.send("POST", "/charges", CHARGE, key="k9")

        assert (again.body, again.is_replayed) == (made.body, True)
        assert (other.status, other.json["id"]) == (201, "F2")
        assert barred.status == 409
        assert await second.client.effects() == ["F1", "F2"]


@pytest.mark.parametrize(("where", "is_done"), [("before", False), ("after", True)])
async def test_a_kill_under_way_leaves_all_or_nothing(
    ledger_path: Path, where: str, *, is_done: bool
) -> None:
    """Killed before the effect there is nothing, after it all: effect, answer and outcome."""
    async with process(ledger_path) as first:
        await first.client.switch({"do": {"hold": where, "name": "x"}})
        async with asyncio.TaskGroup() as tasks:
            heard = tasks.create_task(book(first.client, "k1"))
            await kill_when_held(first)

    assert not heard.result()
    (request,) = read_ledger(ledger_path).requests
    assert request.outcome == ("applied" if is_done else None)
    async with process(ledger_path) as second:
        again = await second.client.send("POST", "/flights", ROME, key="k1")

        assert (again.status, again.is_replayed) == (201, is_done)
        assert await second.client.effects() == ["F1"]


async def kill_when_held(running: Running) -> None:
    """Kill the world as soon as it holds a request."""
    await running.client.held("x")
    await running.end(signal.SIGKILL)


async def test_a_kill_under_load_leaves_a_sound_ledger(ledger_path: Path) -> None:
    """Killed in the middle of many requests, each is done or not, and all can be sent again."""
    keys = [f"k{n}" for n in range(200)]
    async with process(ledger_path) as first:
        await first.client.switch({"skip": 50, "do": {"hold": "after", "name": "x"}})
        async with asyncio.TaskGroup() as tasks:
            for key in keys:
                tasks.create_task(book(first.client, key))
            await kill_when_held(first)

    async with process(ledger_path) as second:
        assert all(await asyncio.gather(*(book(second.client, key) for key in keys)))

    ledger = read_ledger(ledger_path)
    assert sorted(str(effect.key) for effect in ledger.effects) == sorted(keys)
    assert judge(ledger, dict.fromkeys(keys, "completed")) == []


async def book(client: Client, key: str) -> bool:
    """Book a flight for a saga that bears the name of its key, and tell whether that was heard."""
    try:
        reply = await client.send("POST", "/flights", ROME, key=key, named=f"{key} flight action")
    except aiohttp.ClientError:
        return False
    return reply.status == 201


async def charge(client: Client, url: str) -> Reply:
    """Charge a card and ask to be called back."""
    return await client.send("POST", "/charges", CHARGE, key="k1", callback_url=url)


async def test_a_report_that_is_held_survives_a_kill(ledger_path: Path, listener: Listener) -> None:
    """What was not told before SIGKILL is held again, and then told; what was told is not."""
    reports = ["in_progress", {"say": "truth", "hold": "x"}]
    async with process(ledger_path) as first:
        await first.client.switch({"do": {"callback": reports}})
        await charge(first.client, listener.url)
        await kill_when_held(first)

    async with process(ledger_path) as second:
        await second.client.held("x")
        assert listener.outcomes == ["in_progress"]
        await second.client.release("x")
        await second.client.callbacks(2)
        again = await charge(second.client, listener.url)

        assert (again.status, again.is_replayed) == (202, True)
        assert listener.outcomes == ["in_progress", "succeeded"]
        assert await second.client.effects() == ["CH1"]


async def test_a_report_whose_answer_is_lost_is_sent_again(
    ledger_path: Path, listener: Listener
) -> None:
    """Killed while a report is out, the world sends the same bytes again and acts no more."""
    listener.silence = asyncio.Event()
    async with process(ledger_path) as first:
        await charge(first.client, listener.url)
        await listener.heard.wait()
        await first.end(signal.SIGKILL)

    assert [each.answered_seq for each in read_ledger(ledger_path).callbacks] == [None]
    listener.silence.set()
    async with process(ledger_path) as second:
        lost, again = await second.client.callbacks(1)

        assert (lost.answered_seq, again.status, again.attempt) == (None, 200, 2)
        assert listener.bodies[0] == listener.bodies[1]
        assert await second.client.effects() == ["CH1"]


async def test_a_report_that_was_put_off_survives_a_kill(
    ledger_path: Path, listener: Listener
) -> None:
    """Killed between two tries, the world goes on trying when it is started again."""
    listener.answers = [503] * 5
    async with process(ledger_path) as first:
        await charge(first.client, listener.url)
        await first.client.callbacks(1)
        await first.end(signal.SIGKILL)

    listener.answers = []
    async with process(ledger_path) as second:

        async def is_taken() -> bool:
            return (await second.client.callbacks(1))[-1].status == 200

        await wait_until(is_taken, what="the report to be taken")

    assert {each.report for each in read_ledger(ledger_path).callbacks} == {0}


async def test_what_is_told_is_not_told_again(ledger_path: Path, listener: Listener) -> None:
    """A world that is started again after all was told tells nothing."""
    async with process(ledger_path) as first:
        await charge(first.client, listener.url)
        await first.client.callbacks(1)
        await first.end(signal.SIGTERM)

    async with process(ledger_path) as second:
        await second.client.send("POST", "/cars", ROME, key="k2", callback_url=listener.url)
        assert [each.key for each in await second.client.callbacks(2)] == ["k1", "k2"]


async def test_a_report_is_broken_off_by_a_stop(ledger_path: Path, listener: Listener) -> None:
    """A world that is told to stop does so, whoever does not answer it."""
    listener.silence = asyncio.Event()
    async with process(ledger_path) as running:
        await charge(running.client, listener.url)
        await listener.heard.wait()

        assert await running.end(signal.SIGTERM) == 0


def test_a_ledger_of_another_version_is_refused(ledger_path: Path) -> None:
    """A file that an older world made ends the command with status 2 and says what to do."""
    with contextlib.closing(sqlite3.connect(ledger_path)) as connection:
        connection.execute("CREATE TABLE requests (seq INTEGER PRIMARY KEY)")

    command = ["-m", "examples.world", "--port", "0", "--ledger", str(ledger_path)]
    ended = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 2
    assert "has version 0 of the ledger, not 2: take a new file" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_also_while_requests_are_held(
    ledger_path: Path, number: signal.Signals
) -> None:
    """A world that is told to stop does so with status 0, whoever is waiting."""
    async with process(ledger_path) as running:
        await running.client.switch({"do": {"hold": "before", "name": "x"}})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(book(running.client, "k1"))
            await running.client.held("x")
            assert await running.end(number) == 0


async def test_switches_can_be_set_from_a_file(ledger_path: Path, tmp_path: Path) -> None:
    """With `--switches` the world begins with faults."""
    file = tmp_path / "switches.json"
    file.write_text(json.dumps([{"do": {"fail": 503}}]))

    async with process(ledger_path, "--switches", str(file)) as running:
        assert (await running.client.send("GET", "/flights")).status == 503


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"do": {"fail": 404}}]', "$[0].do.fail: expected a whole number from 500 to 599"),
        ("[", "Expecting value"),
        (None, "No such file"),
    ],
)
def test_a_bad_switches_file_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    """A file that is missing or wrong ends the command with status 2 and says why."""
    file = tmp_path / "switches.json"
    if content is not None:
        file.write_text(content)

    command = ["-m", "examples.world", "--ledger", str(tmp_path / "w.db"), "--switches", str(file)]
    ended = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 2
    assert message in ended.stderr


async def test_a_port_in_use_is_said_plainly(ledger_path: Path, tmp_path: Path) -> None:
    """A port that is taken ends the command with status 1 and one line."""
    async with process(ledger_path) as running:
        port = running.client.url.rpartition(":")[2]
        command = ["-m", "examples.world", "--ledger", str(tmp_path / "w.db"), "--port", port]
        ended = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"cannot serve on 127.0.0.1:{port}: ")


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples need curl")
async def test_the_examples_of_the_readme_work(ledger_path: Path) -> None:
    """The shell blocks of the README run one after the other and do what they say."""
    script = "\n".join(blocks("sh"))
    async with process(ledger_path) as running:
        shell = await asyncio.create_subprocess_exec(
            "bash",
            "-euc",
            script,
            env=os.environ | {"WORLD": running.client.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output, errors = await asyncio.wait_for(shell.communicate(), timeout=60)
        ledger = await running.client.ledger()

    assert (shell.returncode, errors) == (0, b"")
    for shown in (b'{"id": "F1", "city": "Rome"}', b'"deleted": true', b'"charge": "CH1"'):
        assert shown in output
    assert b'{"released": 1}' in output
    assert [each.resource for each in ledger.effects] == ["F1", "CH1", "H1"]
    assert [each.status for each in ledger.requests] == [201, 200, 200, 201, 201, 201]


def test_the_python_example_of_the_readme_works(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python block of the README prints what its comment says."""
    (block,) = blocks("python")

    exec(compile(block, str(README), "exec"), {})

    printed = capsys.readouterr().out.strip()
    assert printed
    assert f"# {printed}" in block


def blocks(language: str) -> list[str]:
    """The code blocks of the README in one language."""
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
