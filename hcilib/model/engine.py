"""Where files are read: in this process, in several of this machine, or on a dask cluster; one call for all three.

Reading is a map over files, and what comes of it adds up. So joblib carries all of it: loky processes here, a
distributed cluster by its scheduler's address or the analyst's own Client. Below `POOL_BYTES` nothing is started: two
processes that first import pandas cost more than they save (data/samples/bench_scale.csv).
"""

from __future__ import annotations

import logging
import re
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from hcilib.model.places import at_home

if TYPE_CHECKING:
    from distributed import Client

Chunk = TypeVar("Chunk")
Result = TypeVar("Result")
Engine: TypeAlias = "str | Client | None"
Outcomes: TypeAlias = Generator[tuple[Any, Exception | None], None, None]
"""Of every chunk what the function gave, or what it raised."""

POOL_BYTES = 256 * 2**20
"""Fewer bytes than these are read in this process."""
CONNECT_S = 5
"""How long a scheduler may take to answer, and its first worker to come."""
_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx|inproc)://\S+")


class EngineError(RuntimeError):
    """What reads the files is not there or was lost; the sentence names it and says what to do."""


def mapped(
    function: Callable[[Chunk], Result], chunks: Sequence[Chunk], engine: Engine = None, *, size_bytes: float = 0
) -> Iterator[Result]:
    """``function(chunk)`` of every chunk, in the order of `chunks`, as they come.

    Parameters
    ----------
    function : at the top level of a module, so that other processes find it by name
    chunks : picklable; paths in them absolute, and seen under the same name wherever they are read
    engine : None, this machine: this process while `size_bytes` is below `POOL_BYTES` or joblib is not installed, else
        loky processes;
        ``"tcp://host:8786"``, the dask cluster of that scheduler; a ``distributed.Client``, its cluster. A worker that
        dies is replaced by another and changes nothing. hcilib has to be installed on the workers, in one version.
    size_bytes : what the chunks hold together; 0 where it is not known

    Raises
    ------
    EngineError : no scheduler, a lost one, no worker, or processes that were killed again and again. What `function`
        raises comes out as it is.
    """
    outcomes: Outcomes
    if engine is not None:
        outcomes = _on_cluster(function, chunks, engine)
    elif len(chunks) > 1 and size_bytes >= POOL_BYTES and find_spec("joblib"):
        outcomes = _on_this_machine(function, chunks)
    else:
        outcomes = ((function(chunk), None) for chunk in chunks)
    with closing(outcomes):  # at once: an exception that a notebook keeps would keep the cluster's Client open too
        for result, error in outcomes:
            if error is not None:
                raise error
            yield result


def located(path: str | Path) -> Path:
    """The path, from the repository where it is none from here (hcilib.model.places); of a URL (``s3://bucket/run``,
    ``memory://run``, ``file:///run``) an object with a path's methods.

    Raises
    ------
    EngineError : what reads such URLs is not installed
    """
    if not isinstance(path, str):
        return at_home(path) if isinstance(path, Path) else path
    if "://" not in path:
        return at_home(path)
    try:
        from upath import UPath

        place: Any = UPath(path)  # no Path to a checker
        return place
    except (ImportError, ValueError) as error:  # ValueError: fsspec knows no such protocol
        mend = "pip install 'hcilib[scale]' and what fsspec asks for"
        raise EngineError(f"{path}: nothing here opens such a URL ({error}): {mend}") from None


def _outcome(function: Callable[[Chunk], Result], chunk: Chunk) -> tuple[Result | None, Exception | None]:
    """What the function gave or raised: an error that is raised where it is caught is never taken for the engine's."""
    try:
        return function(chunk), None
    except Exception as error:
        error.add_note(f"In the process that read it:\n{traceback.format_exc()}")
        return None, error


def _outcomes(
    function: Callable[[Chunk], Result], chunks: Sequence[Chunk], backend: str = "loky", **settings
) -> Outcomes:
    from joblib import Parallel, delayed, parallel_config

    # the configuration is this thread's: held open across a yield, it would be the caller's as well
    with parallel_config(backend, **settings):
        parallel = Parallel(n_jobs=-1, batch_size=1, return_as="generator")
    outcomes = parallel(delayed(_outcome)(function, chunk) for chunk in chunks)
    try:
        for outcome in outcomes:  # noqa: UP028 (yield from would close `outcomes` itself)
            yield outcome
    finally:
        with warnings.catch_warnings():  # joblib warns of parts nobody wants any more
            warnings.simplefilter("ignore")
            outcomes.close()


def _on_this_machine(function: Callable[[Chunk], Result], chunks: Sequence[Chunk]) -> Outcomes:
    """Processes that were killed (out of memory?) get one more try with what they left."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    done = 0
    for _ in range(2):
        try:
            for outcome in _outcomes(function, chunks[done:]):
                done += 1
                yield outcome
            return
        except TerminatedWorkerError:
            continue
    read = f"{done} of {len(chunks)} parts were read"
    todo = "free memory on this machine, or give engine= the address of a dask cluster"
    raise EngineError(f"processes that read files were killed twice; {read}: {todo}")


def _on_cluster(function: Callable[[Chunk], Result], chunks: Sequence[Chunk], engine: str | Client) -> Outcomes:
    with _client(engine) as client, _quiet():
        if client.status != "running":
            raise EngineError(f"the Client given as engine= is {client.status}: make one with the scheduler's address")
        address = client.scheduler.address
        try:
            yield from _outcomes(function, chunks, "dask", client=client, wait_for_workers_timeout=CONNECT_S)
        except Exception as error:
            raise EngineError(f"{address}: {_trouble(error)}") from None


def _trouble(error: Exception) -> str:
    """A cluster's failure as a sentence that says what to do."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return "one part killed every worker that took it: give the workers more memory, or read fewer files at a time"
    if isinstance(error, TimeoutError):
        return "the scheduler has no workers: start some with `dask worker` and this address"
    if isinstance(error, (CancelledError, OSError)):
        return "the scheduler was lost while files were read: start it and its workers again, then repeat the call"
    return f"the cluster could not run it ({type(error).__name__}: {error}): are hcilib and joblib on its workers?"


def _client(engine: str | Client) -> AbstractContextManager[Client]:
    """The analyst's own Client stays open; one made from an address is closed."""
    if not isinstance(engine, str):
        return nullcontext(engine)
    if not _ADDRESS.fullmatch(engine):
        raise EngineError(f"engine={engine!r} is no dask scheduler's address; one is written like tcp://host:8786")
    try:
        from distributed import Client

        return Client(engine, timeout=CONNECT_S, set_as_default=False)
    except ImportError as error:
        raise EngineError(f"{engine}: {error}: pip install 'hcilib[scale]'") from None
    except OSError as error:
        raise EngineError(f"{engine}: no dask scheduler answers ({error}): start `dask scheduler` there") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """A lost connection is told once, by EngineError, and not as distributed's traceback of it as well."""
    log = logging.getLogger("distributed.client")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
