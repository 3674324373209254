"""The right that each route needs, where a token may stand, and what a browser may do. The table below is the decision;
a route that is missing here, or says something else, fails."""

from __future__ import annotations

from dueline.config.settings import Settings
from dueline.dialects.http import Browser, Route
from dueline.dialects.youzan.decode import COMMANDS
from dueline.rights import Right
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App

TABLE = """
healthz                         none    nowhere
readyz                          none    nowhere
metrics                         read    header
openapi                         none    nowhere
docs                            none    nowhere          /docs: any link
root                            none    nowhere          /: any link
ui                              none    nowhere          /ui/: any link
ui_moved                        none    nowhere          /ui: any link
ui_settings                     none    nowhere
ui_login                        none    nowhere
ui_logout                       none    nowhere

send                            send    header or cookie
list_jobs                       read    header or cookie
get                             read    header or cookie
history                         read    header or cookie
patch                           manage  header or cookie
cancel                          manage  header or cookie
fire                            manage  header or cookie
cancel_jobs                     manage  header or cookie
pull                            pull    header or cookie
pull_topics                     pull    header or cookie
ack                             pull    header or cookie
release                         pull    header or cookie
extend                          pull    header or cookie
list_topics                     read    header or cookie
get_topic                       read    header or cookie
put_topic                       manage  header or cookie
delete_topic                    manage  header or cookie
pause                           manage  header or cookie
resume                          manage  header or cookie
list_namespaces                 read    header or cookie
forecast                        read    header or cookie
topic_forecast                  read    header or cookie
charts                          read    header or cookie
list_groups                     read    header or cookie
list_dead                       read    header or cookie
revive                          manage  header or cookie
purge                           manage  header or cookie
get_push                        push    header or cookie
put_push                        push    header or cookie
remove_push                     push    header or cookie
list_attempts                   push    header or cookie
pause_push                      push    header or cookie
resume_push                     push    header or cookie
list_schedules                  read    header or cookie
get_schedule                    read    header or cookie
put_schedule                    manage  header or cookie
delete_schedule                 manage  header or cookie
next_occurrences                read    header or cookie
preview_schedule                read    header or cookie
run_schedule                    manage  header or cookie
pause_schedule                  manage  header or cookie
resume_schedule                 manage  header or cookie
create_token                    admin   header or cookie
list_tokens                     admin   header or cookie
get_token                       admin   header or cookie
rotate_token                    admin   header or cookie
revoke_token                    admin   header or cookie
events                          read    header or cookie
list_workers                    read    header or cookie
put_worker                      pull    header or cookie
stop_worker                     pull    header or cookie
list_audit                      admin   header or cookie
info                            read    header or cookie

camellia_send_msg               send    header or path
camellia_pull_msg               pull    header or path
camellia_long_polling_msg       pull    header or path
camellia_ack_msg                pull    header or path
camellia_delete_msg             manage  header or path
camellia_get_msg                read    header or path
camellia_get_monitor_data       read    header or path
camellia_get_monitor_string     read    header or path
camellia_get_topic_info         read    header or path
camellia_get_topic_info_list    read    header or path
camellia_health_status          none    nowhere
camellia_health_check           none    nowhere
camellia_health_online          admin   header or path   refused
camellia_health_offline         admin   header or path   refused

ouqiang_push                    send    header or path
ouqiang_pop                     pull    header or path
ouqiang_finish                  pull    header or path
ouqiang_delete                  manage  header or path
ouqiang_get                     read    header or path

youzan_command add              send    header or path
youzan_command pop              pull    header or path
youzan_command finish           pull    header or path
youzan_command delete           manage  header or path
youzan_command_named add        send    header or path
youzan_command_named pop        pull    header or path
youzan_command_named finish     pull    header or path
youzan_command_named delete     manage  header or path

spring_add                      push    header or path
spring_types                    read    header or path
spring_service_info             read    header or path

exfe_push                       push    header or path
exfe_drop                       manage  header or path
"""


def lines_of(route: Route) -> list[str]:
    """What the table says about a route."""
    place = " or ".join(place.name.lower() for place in route.token if place.name) or "nowhere"
    browser = {
        Browser.OWN_PAGES: "",
        Browser.ANY_LINK: f"{route.pattern}: any link",
        Browser.REFUSED: "refused",
    }[route.browser]
    rights = {"": route.right} if isinstance(route.right, Right) else route.right
    return [
        f"{f'{route.name} {command}'.rstrip():<32}{right:<8}{place:<17}{browser}".rstrip()
        for command, right in rights.items()
    ]


def served() -> list[Route]:
    [front] = App(Settings(), ExternalStore("unix:///nowhere")).fronts
    return front.router.routes()


def test_every_route_needs_the_right_and_takes_the_token_that_the_table_says() -> None:
    found = {line for route in served() for line in lines_of(route)}
    files = {f"{page:<32}none    nowhere" for page in ("docs", "ui")}  # the files of the pages
    written = set(filter(None, TABLE.split("\n"))) | files
    assert (sorted(found - written), sorted(written - found)) == ([], [])


def test_probes_are_answered_even_when_every_limit_is_reached() -> None:
    probes = {"healthz", "readyz", "metrics", "camellia_health_status", "camellia_health_check"}
    assert {route.name for route in served() if route.is_health} == probes


def test_only_a_public_route_takes_no_token() -> None:
    assert [r.name for r in served() if (r.right is Right.NONE) != (not r.token)] == []


def test_a_command_in_the_body_has_a_right_for_each_command() -> None:
    rights = [route.right for route in served() if not isinstance(route.right, Right)]
    assert [set(one) for one in rights] == [set(COMMANDS.values())] * 2  # its two paths


def test_what_manages_is_audited_but_for_the_normal_life_of_jobs() -> None:
    managing = (Right.MANAGE, Right.PUSH, Right.ADMIN)
    changing = [route for route in served() if route.right in managing and route.method != "GET"]
    assert {route.name for route in changing if not route.audited} == {"patch", "fire", "spring_add", "exfe_push"}
    by_command = [route for route in served() if not isinstance(route.right, Right)]
    assert [set(route.right) & set(route.audited) for route in by_command if isinstance(route.audited, dict)] == [
        {"delete"},
        {"delete"},
    ]
