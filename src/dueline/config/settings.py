"""All settings as one frozen value. The structs are the single definition of each key: its name, type, bounds, default
and meaning. They drive the TOML file, the environment, the flags and the docs page (config.table).

Rules for the next editor: a new key needs a `Meta(description=...)`, a default that suits most users, and its unit in
its name. A key that may hold a secret is listed in SECRET.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..dialects.settings import DialectSettings, ForeignSettings
from ..dialects.table import DIALECTS
from ..engine.limits import Limits
from ..store.valkey.tls import StoreTls

DEFAULT_LISTEN = "127.0.0.1:9277"
DEFAULT_DATA = "./dueline-data"

SECRET = frozenset({"store.url", "store.sentinel_password", "discovery.eureka.url"})


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """TLS for all addresses of the server."""

    cert: Annotated[
        str | None,
        Meta(
            description="File of the certificate, in PEM format, followed by any intermediate certificates. "
            "It serves HTTPS on every address. Empty: HTTP."
        ),
    ] = None
    key: Annotated[
        str | None,
        Meta(
            description="File of its private key, in PEM format, not encrypted. No other user may be able to read it."
        ),
    ] = None
    min_version: Annotated[Literal["1.2", "1.3"], Meta(description="The lowest version of TLS that is accepted.")] = (
        "1.2"
    )


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The process and its listener."""

    listen: Annotated[
        str, Meta(description="Address to listen on, HOST:PORT or [IPV6]:PORT. Port 0: any free port.")
    ] = DEFAULT_LISTEN
    workers: Annotated[
        int, Meta(ge=1, le=256, description="Server processes that share the address and the store.")
    ] = 1
    auth: Annotated[
        Literal["none", "tokens"],
        Meta(description="none: everyone who can reach the server may do everything. tokens: each call needs a token."),
    ] = "none"
    insecure: Annotated[
        bool,
        Meta(description="Allow an address that other machines can reach without tokens, or without TLS."),
    ] = False
    hosts: Annotated[
        tuple[str, ...],
        Meta(
            description='Names of this server that clients may use ("queue.corp", "*.corp"), besides localhost and IP '
            "addresses. A request to any other name is refused. On an address that other machines can reach, this is "
            "checked only if names are given here."
        ),
    ] = ()
    origins: Annotated[
        tuple[str, ...],
        Meta(
            description='Origins of web pages that may call this server ("https://queue.corp"), besides its own '
            "address. Needed behind a proxy that changes Host."
        ),
    ] = ()
    lame_duck_ms: Annotated[
        Annotated[int, Meta(ge=0, le=600_000)] | None,
        Meta(
            description="After SIGTERM: how long the server still serves while /readyz answers 503, so that load "
            "balancers and clients go elsewhere. Empty: 3000 with a store.url, else 0, because nobody else serves an "
            "embedded store. A second signal ends it."
        ),
    ] = None
    drain_ms: Annotated[
        int, Meta(ge=0, le=600_000, description="After that: how long running calls may take to finish.")
    ] = 5_000
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Open client connections, per process and address to listen on. When all are taken, the client "
            "with the most gives one up for a client with fewer; else new ones are refused.",
        ),
    ] = 10_000
    max_connections_per_address: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="The share of one client: its IPv4 address, or the /64 of its IPv6 address. Behind a proxy all "
            "clients are one: set it to max_connections there.",
        ),
    ] = 2_000
    max_unfinished_per_address: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Connections of one client that have sent only a part of a request, or of a TLS handshake.",
        ),
    ] = 256
    ui: Annotated[bool, Meta(description="Serve the dashboard at /ui/.")] = True
    ui_read_only: Annotated[
        bool,
        Meta(description="The dashboard shows no actions. With tokens, a login at the dashboard can change nothing."),
    ] = False
    ui_environment: Annotated[
        str, Meta(max_length=24, description='A name that the dashboard shows in its head, such as "production".')
    ] = ""
    ui_colour: Annotated[
        Literal["grey", "blue", "green", "amber", "red", "purple"], Meta(description="The colour of that name.")
    ] = "grey"
    tls: Tls = Tls()

    @property
    def scheme(self) -> str:
        """The scheme of the URLs of this server."""
        return "http" if self.tls.cert is None else "https"


class Store(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where jobs are kept."""

    url: Annotated[
        str | None,
        Meta(
            description="Address of a Redis or Valkey (redis://, rediss:// with TLS, unix://, redis+sentinel://, "
            "redis+cluster://; see docs/stores.md). Empty: the server runs an embedded store in store.data."
        ),
    ] = None
    sentinel_username: Annotated[
        str | None, Meta(description="User at the sentinels of redis+sentinel://, if they have access control lists.")
    ] = None
    sentinel_password: Annotated[
        str | None, Meta(description="Password of the sentinels of redis+sentinel://. The URL has that of the nodes.")
    ] = None
    data: Annotated[str, Meta(min_length=1, description="Folder of the embedded store.")] = DEFAULT_DATA
    binary: Annotated[
        str | None, Meta(description="Program of the embedded store, to use another valkey-server or redis-server.")
    ] = None
    durability: Annotated[
        Literal["fsync", "standard", "replicated"] | None,
        Meta(
            description="What a success means: fsync (on disk), standard (as the store is configured) or replicated "
            "(a replica has it). Empty: fsync when embedded, replicated with Sentinel and Cluster, else standard."
        ),
    ] = None
    degraded: Annotated[
        Literal["refuse", "accept"],
        Meta(
            description="Replicated: what happens while no replica answers: refuse (503), or accept (as standard, with "
            "a warning and a metric)."
        ),
    ] = "refuse"
    prefix: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,32}$", description="The prefix of every key in the store.")
    ] = "dueline"
    min_free_bytes: Annotated[
        int,
        Meta(ge=0, description="Embedded: sends are refused while the disk has less free space; other calls work."),
    ] = 128 << 20
    max_memory_bytes: Annotated[
        Annotated[int, Meta(ge=8 << 20)] | None,
        Meta(
            description="Embedded: sends are refused while the store uses more memory than this; other calls work. "
            "Empty: 40 % of the memory of the machine, or of the container."
        ),
    ] = None
    tls: StoreTls = StoreTls()


class Topics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for every topic."""

    idle_ms: Annotated[
        int,
        Meta(ge=1_000, description="A topic without jobs, leases, waiters and policy is removed after this time."),
    ] = 30 * 60_000


class Push(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Outgoing calls."""

    enabled: Annotated[
        bool, Meta(description="Whether this server makes push calls. Others on the same store may make them.")
    ] = True
    allow: Annotated[
        tuple[str, ...],
        Meta(
            description='What may be called besides public addresses: networks ("10.0.0.0/8", "127.0.0.1") and names '
            '("billing.corp", "*.corp"), each on every port.'
        ),
    ] = ()
    ports: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=65_535)], ...],
        Meta(description="The ports that may be called on all other addresses. Empty: all."),
    ] = ()
    deny_names: Annotated[
        tuple[str, ...], Meta(description="Names that are never called, whatever they resolve to, unless allowed.")
    ] = ("metadata.google.internal", "metadata", "*.internal")
    follow_redirects: Annotated[
        int, Meta(ge=0, le=5, description="How many redirects a call follows; each is checked like the call itself.")
    ] = 0
    per_host: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Concurrent calls to one host, per process, for a topic whose jobs carry their own URLs.",
        ),
    ] = 16
    user_agent: Annotated[
        Annotated[str, Meta(pattern=r"^[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?$")] | None,
        Meta(description="The User-Agent header of calls. Empty: dueline/ and the version."),
    ] = None


class StaticInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One running instance of a service. `tasks`: the task types it handles, separated by commas; some dialects need
    them."""

    url: Annotated[str, Meta(pattern=r"^https?://[^\s/]", max_length=2048)]
    tasks: str | None = None


class Eureka(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Eureka registry."""

    url: Annotated[
        Annotated[str, Meta(pattern=r"^https?://\S+(\s*,\s*https?://\S+)*$")] | None,
        Meta(
            description="Its address, such as http://127.0.0.1:8761/eureka; separate several with commas. Needs "
            "dueline[eureka]. Empty: no registry.",
        ),
    ] = None
    prefer_ip: Annotated[bool, Meta(description="Call instances by their addresses, not by their names.")] = False
    refresh_ms: Annotated[
        int, Meta(ge=1_000, le=3_600_000, description="How long an answer of the registry is cached.")
    ] = 10_000


class Discovery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the services run that push targets and dialects name."""

    static: Annotated[
        dict[str, tuple[StaticInstance, ...]],
        Meta(
            description='A table [discovery.static] of service = [{ url = "http://127.0.0.1:9024", tasks = "task1" }], '
            "in the order to try them. It takes precedence over the registry."
        ),
    ] = msgspec.field(default_factory=dict)
    eureka: Eureka = Eureka()


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The audit log, in the store."""

    max_entries: Annotated[
        int,
        Meta(
            ge=100,
            le=100_000,
            description="How many entries are kept, for all namespaces together; the oldest are dropped.",
        ),
    ] = 10_000


class Log(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The log, on stderr."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="The lowest level to log.")] = (
        "info"
    )
    format: Annotated[
        Literal["auto", "json", "text"],
        Meta(
            description="json: every line is a JSON object, even the ready line. auto: text on a terminal, else JSON "
            "except for the ready line and the reason for a failed start."
        ),
    ] = "auto"


class DialectSections(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The wire protocols: a section for each dialect of the table."""

    def by_name(self) -> dict[str, DialectSettings]:
        """Every section by its name, in the order of the table."""
        return {spec.name: getattr(self, spec.name) for spec in DIALECTS}


if TYPE_CHECKING:

    class Dialects(DialectSections, frozen=True):
        def __init__(self, **sections: DialectSettings) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    Dialects = msgspec.defstruct(
        "Dialects",
        [(spec.name, spec.settings, spec.settings()) for spec in DIALECTS],
        bases=(DialectSections,),
        module=__name__,
        frozen=True,
        forbid_unknown_fields=True,
    )


def namespaces_with_own_ids(dialects: Dialects) -> frozenset[str]:
    """The namespaces with namespace-scoped ids: those of the protocols that address a job without its topic."""
    own = (getattr(dialects, spec.name) for spec in DIALECTS if spec.namespace_ids)
    return frozenset(one.namespace for one in own if one.enabled)


EVERY_NAMESPACE = "*"


class NamespaceLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one namespace may use. Empty: no limit."""

    requests_per_s: Annotated[
        Annotated[float, Meta(gt=0, le=10_000_000)] | None,
        Meta(description="Requests per second, per process. A burst may have those of one second, and at least 10."),
    ] = None
    max_connections: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Open connections, per process.")
    ] = None
    max_polls: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Pulls in progress, waiting ones included, per process.")
    ] = None
    max_pending_jobs: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Jobs that are scheduled, ready or leased, over all servers. They are counted every one "
            "to five seconds: what all servers accept in between may exceed it."
        ),
    ] = None
    max_queued_jobs: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Jobs of calls that wait for the store, per process. Acks, releases and extends are never "
            "refused."
        ),
    ] = None
    look_ups_per_s: Annotated[
        Annotated[float, Meta(gt=0, le=10_000_000)] | None,
        Meta(description="Host names that pushes resolve per second, per process. Jobs beyond it wait."),
    ] = None
    push_allow: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="The only networks and names that pushes of this namespace may call, as in push.allow. They "
            "must also be allowed by [push]. An empty list: none."
        ),
    ] = None


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration of a server."""

    server: Server = Server()
    store: Store = Store()
    limits: Limits = Limits()
    topics: Topics = Topics()
    push: Push = Push()
    discovery: Discovery = Discovery()
    audit: Audit = Audit()
    log: Log = Log()
    dialects: Dialects = Dialects()
    namespaces: Annotated[
        dict[str, NamespaceLimits],
        Meta(description='The limits of namespaces, by name. "*": of every namespace without a table of its own.'),
    ] = msgspec.field(default_factory=dict)

    def served(self) -> dict[str, DialectSettings]:
        """The dialects that this server serves, by name. If it checks tokens, it serves a foreign dialect only if the
        dialect's settings say who may call it."""
        tokens = self.server.auth == "tokens"
        return {name: one for name, one in self.dialects.by_name().items() if one.is_served(tokens)}

    def callers(self) -> dict[str, str]:
        """Who may call each foreign dialect: its `auth`, or "off" if it is not served."""
        served = self.served()
        return {
            name: (one.auth or "none") if name in served else "off"
            for name, one in self.dialects.by_name().items()
            if isinstance(one, ForeignSettings)
        }


# [limits] belongs to the engine (engine.limits), which does not know the config: (minimum, maximum, meaning).
LIMITS: dict[str, tuple[int, int, str]] = {
    "max_body_bytes": (1, 4 << 20, "Bytes of one job's body."),
    "max_request_bytes": (1024, 64 << 20, "Bytes of one request."),
    "max_items": (1, 1000, "Items of one call."),
    "max_pull": (1, 1000, "Jobs of one pull."),
    "max_wait_ms": (0, 3_600_000, "Longest wait of a pull."),
    "max_lease_ms": (1_000, 30 * 86_400_000, "Longest lease."),
    "max_delay_ms": (1_000, 100 * 366 * 86_400_000, "How far ahead a job may be due."),
    "max_attempts": (1, 10_000, "Highest max_attempts of a job."),
    "max_tags": (0, 64, "Tags of one job."),
    "max_tag_bytes": (1, 256, "Bytes of one tag."),
    "max_headers": (0, 128, "Headers of one job."),
    "max_headers_bytes": (0, 64 * 1024, "Bytes of all headers of one job."),
    "max_queued_jobs": (1, 1_000_000, "Jobs waiting for a script call, per partition; 429 beyond, large calls first."),
    "max_queued_bytes": (1 << 20, 1 << 30, "Bytes of the jobs waiting for a script call, per partition."),
    "max_waiters": (1, 1_000_000, "Waiting pulls per process."),
    "max_history_bytes": (
        0,
        1 << 30,
        "Bytes of the histories of jobs, per partition; later entries are counted and not kept. 0: no history is kept.",
    ),
}
