"""What runs on a host of `hosts.py`: gives out sockets, moves its network and its disks."""

import json
import os
import socket
import subprocess
import sys
from typing import Any

from pyroute2 import IPRoute


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    with IPRoute() as network:
        network.link("set", index=network.link_lookup(ifname="lo")[0], state="up")
        control.send(json.dumps({"pid": os.getpid()}).encode())
        while data := control.recv(65536):
            request = json.loads(data)
            descriptors: list[int] = []
            try:
                made = act(network, **request)
                answer: dict[str, Any] = {}
                if made is not None:
                    descriptors = [made.detach()]
            except Exception as error:  # noqa: BLE001 - whatever it is, the test shall say it
                answer = {"error": f"{request}: {error.__class__.__name__}: {error}"}
            socket.send_fds(control, [json.dumps(answer).encode()], descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


def act(network: Any, do: str, **how: Any) -> socket.socket | None:
    if do == "socket":
        return socket.socket()
    if do == "pair":  # a cable: one end here, the other on the host of that pid
        peer = {"ifname": how["name"], "net_ns_pid": how["pid"]}
        network.link("add", ifname=how["name"], kind="veth", peer=peer)
    elif do == "address":
        [index] = network.link_lookup(ifname=how["name"])
        network.addr("add", index=index, address=how["address"], prefixlen=30)
        network.link("set", index=index, state="up")
    elif do == "link":
        network.link("set", index=network.link_lookup(ifname=how["name"])[0], state=how["state"])
    elif do == "disk":
        options = f"size={how['size']},mode=700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", how["path"]], check=True)
    return None


if __name__ == "__main__":
    main()
