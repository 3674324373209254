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

send                            send    header
list_jobs                       read    header
get                             read    header
patch                           manage  header
cancel                          manage  header
fire                            manage  header
cancel_jobs                     manage  header
pull                            pull    header
pull_topics                     pull    header
ack                             pull    header
release                         pull    header
extend                          pull    header
list_topics                     read    header
get_topic                       read    header
put_topic                       manage  header
delete_topic                    manage  header
pause                           manage  header
resume                          manage  header
list_namespaces                 read    header
list_dead                       read    header
revive                          manage  header
purge                           manage  header
get_push                        push    header
put_push                        push    header
remove_push                     push    header
list_attempts                   push    header
pause_push                      push    header
resume_push                     push    header
list_schedules                  read    header
get_schedule                    read    header
put_schedule                    manage  header
delete_schedule                 manage  header
next_occurrences                read    header
run_schedule                    manage  header
pause_schedule                  manage  header
resume_schedule                 manage  header
create_token                    admin   header
list_tokens                     admin   header
get_token                       admin   header
rotate_token                    admin   header
revoke_token                    admin   header
list_audit                      admin   header
info                            read    header

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
    written = set(filter(None, TABLE.split("\n"))) | {f"{'docs':<32}none    nowhere"}  # the files of the page
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
