"""A process of the mesh with its place in the network, and the channels its code opens.

Owns the replacement of gRPC: a `Channel` gives the product's generated stubs their calls and streams, over the
simulated network, to the server of the address. Knows no service.

Invariant: a call goes where a load balancer with health checks would send it: reads to a replica that runs, writes to
one that reports being the writer, which may not be true any more.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tests.sim.mesh.network import Responses, Stream
from tests.sim.mesh.scheduler import RUNNING, Answer, Process

if TYPE_CHECKING:
    from tests.sim.mesh.world import World


class Node(Process):
    """One process and its services."""

    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world.scheduler, world.crashed)
        self.world = world

    @property
    def wall_ms(self) -> int:
        """Its wall clock, epoch milliseconds."""
        return self.world.EPOCH_MS + self.now_ms

    def serve(self, path: str, request: Any) -> Coroutine[Any, Any, Any]:
        """Execute a unary call."""
        raise AssertionError(f"{self.name} does not serve {path}")

    def accept(self, path: str, request: Any, stream: Stream) -> None:
        """Handle an opened stream on which only the server sends."""
        raise AssertionError(f"{self.name} does not serve {path}")


def current_node() -> Node:
    """The node whose code runs now."""
    node = RUNNING.process
    assert isinstance(node, Node), "the product's code runs outside of any process"
    return node


class Channel:
    """A `grpc.aio.Channel` for the calls that generated stubs use."""

    def __init__(self, node: Node, addresses: str) -> None:
        self._node = node
        self._addresses = addresses
        self._sticky: dict[str, Node] = {}

    def unary_unary(self, path: str, **_: object) -> Callable[..., Answer]:
        def call(request: Any, timeout: float | None = None) -> Answer:
            target = self._target(path)
            timeout_ms = None if timeout is None else timeout * 1000
            return self._node.world.network.call(self._node, target, lambda: _serve(target, path, request), timeout_ms)

        return call

    def unary_stream(self, path: str, **_: object) -> Callable[..., Responses]:
        def call(request: Any) -> Responses:
            return open_stream(self._node, self._target(path), path, request)

        return call

    def stream_stream(self, path: str, **_: object) -> Callable[..., Any]:
        def call(requests: Any) -> Any:
            raise AssertionError(f"{path} is opened by the simulator's own links")

        return call

    stream_unary = stream_stream

    async def close(self) -> None:
        """Do nothing: no connection is held open."""

    def _target(self, path: str) -> Node | None:
        found = self._node.world.route(self._node, self._addresses, path, self._sticky.get(path))
        if found is not None:
            self._sticky[path] = found
        return found


def open_stream(node: Node, target: Node | None, path: str, request: Any) -> Responses:
    """Open a stream on which only the server sends."""
    world = node.world
    if target is None or not target.alive:
        dead = Stream(world.network, node, target or node)
        responses = Responses(dead)
        dead.snap()
        return responses
    stream = Stream(world.network, node, target)
    responses = Responses(stream)
    stream.far.heard = lambda message: target.accept(path, message, stream)
    stream.send(stream.near, request)
    return responses


async def _serve(target: Node | None, path: str, request: Any) -> Any:
    assert target is not None
    return await target.serve(path, request)
