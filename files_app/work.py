"""The threads in which git runs and files are read, so that neither a slow disk nor a commit's hooks hold the server up."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

from bridge_project import limits
from files_app.git import mirror, run

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A few threads; what is more than they can take waits for its turn. What was begun is done to its end, whoever asked for it has gone or not."""

    def __init__(self, name: str, size: int) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``function`` in one of the threads and return its result."""
        call = partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


git: Final = Threads("git", limits.GIT_PROCESSES)
files: Final = Threads("files", limits.FILE_READERS)


async def start() -> None:
    await files.run(mirror.forget_leftovers)


async def stop() -> None:
    """End what git is doing: the bridge does not wait for a commit's hooks."""
    await asyncio.to_thread(run.end_all)
