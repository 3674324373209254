"""All routes of the dialect. Every other path below /camellia/ gets the framework's error page."""

from __future__ import annotations

from ..http import Route
from .handlers import CamelliaHandlers
from .options import MAX_FORM_BYTES
from .pages import CamelliaPages

SPACE = "/camellia/"
QUEUE, HEALTH = "/camellia/delayQueue/", "/camellia/health/"


def routes(h: CamelliaHandlers, p: CamelliaPages) -> tuple[Route, ...]:
    """The table with its handlers."""
    most = MAX_FORM_BYTES
    return (
        Route("POST", QUEUE + "sendMsg", h.send_msg, "camellia_send_msg", max_body_bytes=most),
        Route("POST", QUEUE + "pullMsg", h.pull_msg, "camellia_pull_msg", max_body_bytes=most),
        Route("POST", QUEUE + "longPollingMsg", h.long_polling_msg, "camellia_long_polling_msg", True, most),
        Route("POST", QUEUE + "ackMsg", h.ack_msg, "camellia_ack_msg", max_body_bytes=most),
        Route("POST", QUEUE + "deleteMsg", h.delete_msg, "camellia_delete_msg", max_body_bytes=most),
        Route("POST", QUEUE + "getMsg", h.get_msg, "camellia_get_msg", max_body_bytes=most),
        Route("GET", QUEUE + "getMonitorData", p.get_monitor_data, "camellia_get_monitor_data"),
        Route("GET", QUEUE + "getMonitorString", p.get_monitor_string, "camellia_get_monitor_string"),
        Route("GET", QUEUE + "getTopicInfo", p.get_topic_info, "camellia_get_topic_info"),
        Route("GET", QUEUE + "getTopicInfoList", p.get_topic_info_list, "camellia_get_topic_info_list"),
        Route("*", HEALTH + "status", p.health_status, "camellia_health_status", always=True),
        Route("*", HEALTH + "check", p.health_check, "camellia_health_check", always=True),
        Route("*", HEALTH + "online", p.health_online, "camellia_health_online", always=True, programs_only=True),
        Route("*", HEALTH + "offline", p.health_offline, "camellia_health_offline", always=True, programs_only=True),
    )
