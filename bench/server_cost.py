"""What a request costs the server: instructions of its process per operation, counted by valgrind's callgrind.

    python -m bench.server_cost [--product CHECKOUT ...] [--protocol NAME] [--calls N] [--json]

The loads are those of the row `cpu`: one job a call, 64 connections. Each product is a checkout, measured with an
embedded store of its own, which does not run under valgrind. The first is what the others are compared with. Without
one, this checkout is measured. An instruction count depends little on the load of the machine, and moves by a few per
cent with how many calls share a script call. It includes Python, the event loop and the C modules, not the kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from . import checkouts
from .calls import CallRounds
from .instructions import Counter
from .loading import Orders, run
from .servers import Server, dueline, dueline_path, folder, free_port

WORKS: Mapping[str, tuple[str, ...]] = {
    "native": ("send", "pull", "ack", "life", "chained"),
    "camellia": ("send", "pull", "ack"),
    "ouqiang": ("send", "pull", "ack"),
}


def counted(product: str, protocol: str, calls: int) -> dict[str, int]:
    """The instructions of an operation of each kind."""
    with folder() as place:
        port = free_port()
        tool = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={place}/counts.%p", f"--log-file={place}/log")
        command = (*tool, *dueline(product), "serve", "--listen", f"127.0.0.1:{port}", "--data", str(place / "data"))
        environment = {**dueline_path(product), "PYTHONHASHSEED": "0"}
        one = Server(place / "data", command=command, port=port, environment=environment)
        try:
            one.start()
            counter = Counter(place, one.pid)

            def measured(orders: Orders) -> int:
                counter.count()
                done = run(orders).in_all
                return counter.count() // max(1, done)

            rounds = CallRounds(measured, port, place, WORKS[protocol], protocol)
            for number in (0, 1):
                rounds.round(number, calls)
        finally:
            one.stop()
    return {work: used for work, [used] in rounds.used.items()}


def main() -> int:
    parser = checkouts.parser("bench.server_cost", __doc__)
    parser.add_argument("--protocol", choices=WORKS, default="native")
    parser.add_argument("--calls", type=int, default=2_000, help="calls of each kind (default %(default)s)")
    asked = parser.parse_args()
    if not checkouts.has_valgrind():
        return 1
    products: list[str] = asked.product or [""]
    counts = {product: counted(product, asked.protocol, asked.calls) for product in products}
    checkouts.show(counts, "the server's process", asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
