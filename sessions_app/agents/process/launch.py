"""Run an agent's command below a guard process that ends all its descendants.

Run as ``python -I -S launch.py CONTROL``, with the standard library only: its start is part of
every agent's. ``CONTROL`` is the descriptor of a socket to the bridge; ``portable`` after it takes
the portable way.

- It is given the command there, and not as its own arguments, by which others (``pkill -f``) would
  take it for the command: the number of words, a line feed, and the words, a NUL after each. The
  first two are the values of BRIDGE_AGENT_OF and BRIDGE_AGENT_RUN.
- It says, in lines: ``started PID``, ``exited CODE`` (of the command; negative: the signal that
  ended it), ``cleared`` when it has done what ``o`` asks for, ``ended`` when nothing is left.
- It is told, in single bytes: ``t``: ask the command to end (SIGTERM); ``o``: end what the command
  has left running, but not the command. When the socket closes, as it also does when the bridge is
  killed, everything is ended.

On Linux it is a *child subreaper*: what a process below it leaves behind becomes its child,
whatever session that moved to and whatever it did to its environment and descriptors. So to end
everything is to kill the children until there are none. Two such processes stand one behind the
other: the guard, which talks to the bridge and is the command's parent, and the first one, its
parent. When the guard is killed, its children become the first one's, which ends them; when the
first one is killed, the kernel tells the guard (SIGTERM).

In the portable way there is only the guard. Every second it looks through all processes (``ps``)
for the command's descendants, and keeps their process groups in mind: so it knows what its parent
has left behind, unless that came and left between two looks and began a group of its own. It never
says ``ended``: the bridge sweeps after it by the marks.
"""

import os
import select
import signal
import sys
import time

AGENT_OF, AGENT_RUN = "BRIDGE_AGENT_OF", "BRIDGE_AGENT_RUN"
IN_SESSION = "AGENT_BRIDGE_SESSION"  # hooks_app's hook command reads it, and reports nothing
PORTABLE = "portable"  # the argument that takes this way
LOOK_SECONDS = 1.0  # between two looks through all processes; one takes 10 ms
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
NOT_FOUND, NOT_ALLOWED = 127, 126  # as a shell says it
PASS_SECONDS = 0.002  # between two passes over children that are being killed
CLEAN_PASSES = 2  # a list of children can lack one while another ends


def main(arguments: list[str]) -> None:
    """Read a command, and become its guard or, on Linux, the guard's parent."""
    control = int(arguments[0])
    os.set_inheritable(control, False)
    given = read_command(control)
    if not given:
        return
    instance, run, *command = given
    os.environ.update({AGENT_OF: instance, AGENT_RUN: run, IN_SESSION: "1"})
    first = os.getpid()
    if arguments[1:] == [PORTABLE]:
        PortableGuard(control).watch(command)
        return
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    if guard := os.fork():
        drop_streams()
        os.waitpid(guard, 0)
        Parent().end_children()
        return
    Guard(control, first).watch(command)


def read_command(control: int) -> list[str]:
    """Return the words that the bridge sends first; none when it is gone."""
    received = b""
    while True:
        data = os.read(control, 65536)
        if not data:
            return []
        received += data
        count, line, words = received.partition(b"\n")
        if line and words.count(b"\0") == int(count):
            return [os.fsdecode(word) for word in words.split(b"\0")[:-1]]


class Parent:
    """Reap or kill child processes: what the guard and its parent have in common."""

    command = 0  # the process of the command, 0 when there is none or it has been waited for

    def reap(self) -> bool:
        """Wait for children that have ended; tell whether there are others."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.command:
                self.command = 0
                self.report(f"exited {os.waitstatus_to_exitcode(status)}")

    def end_children(self, but: int = 0) -> None:
        """Kill the children, and what becomes a child by that, until none is left.

        What belongs to another user by now (``sudo``) cannot be killed, and is left.
        """
        clean = 0
        while clean < CLEAN_PASSES and self.reap():
            killed = [pid for pid in children() if pid != but and kill(pid)]
            clean = 0 if killed else clean + 1
            time.sleep(PASS_SECONDS)

    def report(self, line: str) -> None:
        """Report to the bridge, where there is a socket to it."""


class Guard(Parent):
    """Run a command as the bridge says, and end the processes that it leaves behind."""

    def __init__(self, control: int, first: int = 0) -> None:
        """Take the socket to the bridge, and the process behind this one."""
        self.control = control
        self.first = first
        self.woken, wake = os.pipe()  # a byte for each signal that has come
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)

    def watch(self, command: list[str]) -> None:
        """Run ``command`` under the bridge's orders until nothing of it is left.

        When all is to end, it kills what is left. Nothing is run where the process behind this one,
        or the bridge, has died before.
        """
        if not self.prepare():
            return
        if select.select([self.control], [], [], 0)[0]:  # the bridge is gone already
            return
        self.command = start(command)
        drop_streams()
        self.report(f"started {self.command}")
        while self.has_left():
            ready, _, _ = select.select([self.control, self.woken], [], [], self.patience)
            signals = os.read(self.woken, 1024) if self.woken in ready else b""
            request = self.read_request() if self.control in ready else None
            if request == b"" or signal.SIGTERM in signals:
                self.end()
                break
            if request == b"t" and self.command:
                signal_group(self.command, signal.SIGTERM)
            elif request == b"o":
                self.end_background()
                self.report("cleared")
        if self.is_certain and not self.reap():
            self.report("ended")

    # what the portable way does otherwise

    patience: float | None = None  # seconds between two questions of what is left
    is_certain = True  # when nothing is seen any more, nothing is left

    def prepare(self) -> bool:
        """Return whether the command may be started."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        return os.getppid() == self.first

    def has_left(self) -> bool:
        """Return whether anything of the command is left."""
        return self.reap()

    def end_background(self) -> None:
        """End what the command has left running."""
        self.end_children(but=self.command)

    def end(self) -> None:
        """End the command and all that it has started."""
        self.end_children()

    def read_request(self) -> bytes:
        """Return the bridge's next request, one byte; empty when the bridge is gone."""
        try:
            return os.read(self.control, 1)
        except OSError:
            return b""

    def report(self, line: str) -> None:
        try:
            os.write(self.control, f"{line}\n".encode())
        except OSError:
            pass  # the bridge is gone, which ``read_request`` finds


class PortableGuard(Guard):
    """Do the same on any Unix, by looking through all processes."""

    patience = LOOK_SECONDS
    is_certain = False

    def __init__(self, control: int) -> None:
        super().__init__(control)
        self.groups: set[int] = set()  # process groups of the command and its descendants
        self.parents: dict[int, int] = {}  # of these processes, at the last look
        self.looked = 0.0

    def prepare(self) -> bool:
        return True

    def has_left(self) -> bool:
        lives = self.reap()
        if time.monotonic() - self.looked >= LOOK_SECONDS or not lives:
            return bool(self.look()) or lives
        return True

    def end_background(self) -> None:
        self.end_all(but=self.command)

    def end(self) -> None:
        self.end_all()

    def end_all(self, but: int = 0) -> None:
        """Kill all that is left, but for one process and what descends from it."""
        clean = 0
        while clean < CLEAN_PASSES:
            found = [pid for pid in self.look() if not but or not self.is_below(pid, but)]
            killed = [pid for pid in found if kill(pid)]
            self.reap()
            clean = 0 if killed else clean + 1
            time.sleep(PASS_SECONDS)

    def is_below(self, pid: int, top: int) -> bool:
        """Return whether a process is, or descends from, another one."""
        while pid not in (0, top):
            pid = self.parents.get(pid, 0)
        return pid == top

    def look(self) -> list[int]:
        """Return what descends from the command, or is in a group of what did."""
        rows, own = processes(), os.getpid()
        found = {own}
        while more := [row for row in rows if row[0] not in found and self.is_ours(row, found)]:
            found.update(row[0] for row in more)
        found.discard(own)
        self.parents = {pid: parent for pid, parent, _ in rows if pid in found}
        # one whose last process has ended can become another's
        self.groups = {group for pid, _, group in rows if pid in found} - {own}
        self.looked = time.monotonic()
        return sorted(found)

    def is_ours(self, row: tuple[int, int, int], found: set[int]) -> bool:
        return row[1] in found or row[2] in self.groups


def processes() -> list[tuple[int, int, int]]:
    """Return pid, parent and group of all living processes but for ps."""
    words = [
        "-A",
        *(word for name in ("pid", "ppid", "pgid", "stat") for word in ("-o", f"{name}=")),
    ]
    reads, writes = os.pipe()
    # not subprocess, whose import would take longer than the start of all else
    to_pipe = (os.POSIX_SPAWN_DUP2, writes, 1)
    lister = os.posix_spawn("/bin/ps", ["ps", *words], os.environ, file_actions=[to_pipe])
    os.close(writes)
    with open(reads, encoding="ascii", errors="replace") as file:
        lines = [line.split() for line in file]
    os.waitpid(lister, 0)
    rows = [line for line in lines if len(line) == 4 and not line[3].startswith("Z")]
    return [
        (int(pid), int(parent), int(group)) for pid, parent, group, _ in rows if int(pid) != lister
    ]


def start(command: list[str]) -> int:
    """Run ``command`` as the leader of a new session; return its pid."""
    if pid := os.fork():
        return pid
    signal.set_wakeup_fd(-1)
    # what is ignored stays so in what follows
    for name in ("SIGTERM", "SIGCHLD", "SIGPIPE", "SIGXFSZ"):
        if number := getattr(signal, name, None):
            signal.signal(number, signal.SIG_DFL)
    os.setsid()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())  # the bridge reads it
        os._exit(NOT_ALLOWED if isinstance(error, PermissionError) else NOT_FOUND)


def children() -> list[int]:
    """Return the pids of this process's children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
        return [int(pid) for pid in pids if parent(pid) == os.getpid()]


def parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def signal_group(leader: int, number: int) -> None:
    """Signal the process group of a leader that nobody has waited for yet."""
    try:
        os.killpg(leader, number)
    except OSError:
        pass  # it has not become a leader yet, or macOS says so of a group of zombies


def drop_streams() -> None:
    """Replace this process's copies of the command's streams by /dev/null."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def prctl(option: int, value: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


if __name__ == "__main__":
    main(sys.argv[1:])
