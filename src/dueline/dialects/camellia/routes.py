"""All routes of the dialect. Every other path below /camellia/ gets the framework's error page."""

from __future__ import annotations

from ...rights import Right
from ..http import PUBLIC, Browser, Route, TokenPlace, line_route
from .handlers import CamelliaHandlers
from .pages import CamelliaPages
from .settings import MAX_FORM_BYTES

SPACE = "/camellia/"
QUEUE, HEALTH = "/camellia/delayQueue/", "/camellia/health/"


def routes(h: CamelliaHandlers, p: CamelliaPages) -> tuple[Route, ...]:
    """The table with its handlers."""
    most, token = MAX_FORM_BYTES, TokenPlace.ANYWHERE
    return (
        line_route("POST", QUEUE + "sendMsg", h.send_msg, "camellia_send_msg", Right.SEND, token, max_body_bytes=most),
        line_route("POST", QUEUE + "pullMsg", h.pull_msg, "camellia_pull_msg", Right.PULL, token, max_body_bytes=most),
        line_route("POST", QUEUE + "longPollingMsg", h.long_polling_msg, "camellia_long_polling_msg", Right.PULL,
                   token, parks=True, max_body_bytes=most),
        line_route("POST", QUEUE + "ackMsg", h.ack_msg, "camellia_ack_msg", Right.PULL, token, max_body_bytes=most),
        Route("POST", QUEUE + "deleteMsg", h.delete_msg, "camellia_delete_msg", Right.MANAGE, token,
              max_body_bytes=most, audited=True),
        Route("POST", QUEUE + "getMsg", h.get_msg, "camellia_get_msg", Right.READ, token, max_body_bytes=most),
        Route("GET", QUEUE + "getMonitorData", p.get_monitor_data, "camellia_get_monitor_data", Right.READ, token),
        Route("GET", QUEUE + "getMonitorString", p.get_monitor_string, "camellia_get_monitor_string", Right.READ,
              token),
        Route("GET", QUEUE + "getTopicInfo", p.get_topic_info, "camellia_get_topic_info", Right.READ, token),
        Route("GET", QUEUE + "getTopicInfoList", p.get_topic_info_list, "camellia_get_topic_info_list", Right.READ,
              token),
        Route("*", HEALTH + "status", p.health_status, "camellia_health_status", *PUBLIC, always=True,
              is_health=True),
        Route("*", HEALTH + "check", p.health_check, "camellia_health_check", *PUBLIC, always=True,
              is_health=True),
        Route("*", HEALTH + "online", p.health_online, "camellia_health_online", Right.ADMIN, token, always=True,
              browser=Browser.REFUSED, audited=True),
        Route("*", HEALTH + "offline", p.health_offline, "camellia_health_offline", Right.ADMIN, token, always=True,
              browser=Browser.REFUSED, audited=True),
    )  # fmt: skip
