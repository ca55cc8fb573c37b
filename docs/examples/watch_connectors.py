"""Watch connectors, and go on where it was when the store restarts or another replica takes its place.

python docs/examples/watch_connectors.py ipv4:127.0.0.1:7201,127.0.0.1:7211
"""

import asyncio
import sys

import grpc.aio
from google.protobuf.json_format import MessageToDict

from herdmesh.api.configstore.v1.config_read_service_pb2 import WatchRequest
from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import ConfigReadServiceStub


async def watch_connectors(address: str) -> None:
    stub, resume = ConfigReadServiceStub(grpc.aio.insecure_channel(address)), None
    while True:
        try:
            async for event in stub.Watch(WatchRequest(resume=resume), wait_for_ready=True):
                if event.HasField("connector_changed"):
                    print(MessageToDict(event.connector_changed), flush=True)
                resume = event.meta.revision if event.HasField("meta") else resume
        except grpc.aio.AioRpcError as error:  # OUT_OF_RANGE: too long ago, so begin with a snapshot again
            resume = None if error.code() is grpc.StatusCode.OUT_OF_RANGE else resume
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(watch_connectors(sys.argv[1]))
