"""The pages for people and load balancers: monitor data, topics, health. They cover a whole server, not one process, so
they get their data through `node`."""

from __future__ import annotations

from typing import Any

from ...engine.engine import Engine
from ...engine.errors import InvalidField, NotFound
from ..http import Request, Response
from . import decode, encode
from .node import CamelliaNode

PAGE = 500
MAX_TOPICS = 10_000
IDLE_MS = 20_000


class CamelliaPages:
    """Each method is named after its route."""

    def __init__(self, engine: Engine, namespace: str, node: CamelliaNode) -> None:
        self._engine = engine
        self._namespace = namespace
        self._node = node

    async def get_monitor_data(self, request: Request) -> Response:
        request.check_all_topics()
        counts = (await self._node.report()).topics
        return encode.data(
            {
                "requestStatsList": encode.request_stats(counts),
                "pullMsgTimeGapStatsList": encode.pull_gaps(counts),
                "readyQueueTimeGapStatsList": encode.ready_gaps(counts),
            }
        )

    async def get_topic_info(self, request: Request) -> Response:
        topic = decode.topic_of(request)
        request.check_topic(topic)
        try:
            view = await self._engine.topic(self._namespace, topic, encode.BANDS_MS)
        except (NotFound, InvalidField):
            view = None
        return encode.data(encode.topic_info(topic, view))

    async def get_topic_info_list(self, request: Request) -> Response:
        request.check_all_topics()
        return encode.data(await self.topic_infos(MAX_TOPICS))

    async def get_monitor_string(self, request: Request) -> Response:
        request.check_all_topics()
        counts = (await self._node.report()).topics
        infos = await self.topic_infos(MAX_TOPICS)
        sizes = ("topic", "waitingQueueSize", "ackQueueSize", "readyQueueSize")
        return encode.text(
            {
                "requestStats": encode.request_stats(counts),
                "pullMsgTimeGapStats": encode.pull_gaps(counts),
                "readyQueueTimeGapStats": encode.ready_gaps(counts),
                "topicInfoStats": [{name: info[name] for name in sizes} for info in infos],
                "waitingQueueStats": [{"topic": info["topic"], **info["waitingQueueInfo"]} for info in infos],
            }
        )

    async def topic_infos(self, most: int) -> list[dict[str, Any]]:
        """The topics in use, by name, at most `most`."""
        infos: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None and len(infos) < most:
            limit = min(PAGE, most - len(infos))
            views, after = await self._engine.topics(self._namespace, after, limit, encode.BANDS_MS)
            infos += [encode.topic_info(view.topic, view) for view in views]
        return infos

    async def health_status(self, request: Request) -> Response:
        return encode.health(request, self._node.online() and self._node.ready())

    async def health_check(self, request: Request) -> Response:
        return encode.health(request, True)

    async def health_online(self, request: Request) -> Response:
        self._node.set_online(True)
        return encode.health(request, True)

    async def health_offline(self, request: Request) -> Response:
        """Poll this until it answers 200: then the server was unused for 20 s and may be stopped."""
        self._node.set_online(False)
        idle_ms = self._engine.store.now_ms() - (await self._node.report()).last_use_ms
        return encode.health(request, idle_ms > IDLE_MS)
