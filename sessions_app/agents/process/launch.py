"""Run an agent's command below a guard process that ends all its descendants.

Run as ``python -I -S launch.py CONTROL``, with the standard library only: its start is part of
every agent's. ``CONTROL`` is the descriptor of a socket to the bridge.

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
first one is killed, the kernel tells the guard (SIGTERM). Elsewhere there is only the guard, which
can end no more than the command's process group.
"""

import os
import select
import signal
import sys
import time

AGENT_OF, AGENT_RUN = "BRIDGE_AGENT_OF", "BRIDGE_AGENT_RUN"
IN_SESSION = "AGENT_BRIDGE_SESSION"  # hooks_app's hook command reads it, and reports nothing
LINUX = sys.platform == "linux"
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
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        if guard := os.fork():
            drop_streams()
            os.waitpid(guard, 0)
            Parent().end_children()
            return
    Guard(control).watch(command, first)


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

    def __init__(self, control: int) -> None:
        self.control = control
        self.woken, wake = os.pipe()  # a byte for each signal that has come
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)

    def watch(self, command: list[str], first: int) -> None:
        """Run ``command`` under the bridge's orders until nothing of it is left.

        When all is to end, it kills what is left. ``first``: the process behind this one. Nothing
        is run where it, or the bridge, has died before.
        """
        if LINUX:
            prctl(PR_SET_CHILD_SUBREAPER, 1)
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != first:
                return
        if select.select([self.control], [], [], 0)[0]:  # the bridge is gone already
            return
        self.command = start(command)
        drop_streams()
        self.report(f"started {self.command}")
        while self.reap():
            ready, _, _ = select.select([self.control, self.woken], [], [])
            signals = os.read(self.woken, 1024) if self.woken in ready else b""
            request = self.read_request() if self.control in ready else None
            if request == b"" or signal.SIGTERM in signals:
                self.end()
                break
            if request == b"t" and self.command:
                signal_group(self.command, signal.SIGTERM)
            elif request == b"o":
                if LINUX:
                    self.end_children(but=self.command)
                self.report("cleared")
        if LINUX and not self.reap():
            self.report("ended")

    def end(self) -> None:
        if LINUX:
            self.end_children()
        elif self.command:
            signal_group(self.command, signal.SIGKILL)
            while self.reap():
                time.sleep(PASS_SECONDS)

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
