"""Checks values against the product's limits, once for all dialects. No I/O.

Every refusal is a DuelineError with a stable code and a field name. The name has no index; callers with many items
prefix it ("[3].") with `at_place`. Stricter rules of a foreign protocol are checked by its dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import UnsetType

from ..bounds import MAX_GROUP_ITEMS, MAX_PULL_TOPICS, MAX_WAITS
from .commands import Filter, Patch, Pull, Send, TopicPatch
from .errors import BodyTooLarge, DuelineError, InvalidField, TooManyItems
from .job import State
from .limits import CELLS, LAST_MS, MAX_ERROR_BYTES, Limits, check_name
from .policy import POLICY_FIELDS, TEN_YEARS_MS, AtOnce, Ladder, MergePolicy, Retry, TopicPolicy
from .store import Extend, OnConflict, Query, Ref, Release

HARD_BODY_BYTES = 4 << 20
YEAR_MS = 366 * 86_400_000
MAX_TOKEN_CHARS = 128
MAX_PULL_PARTITIONS = 2 * CELLS  # asked one after the other, which takes about a second in total
MAX_PAGE = 500

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

E = TypeVar("E", bound=DuelineError)


def at_place(error: E, place: int) -> E:
    """The same error, with its field in item number `place` of a list."""
    error.field = f"[{place}]" if error.field is None else f"[{place}].{error.field}"
    return error


def within(value: int, low: int, high: int, field: str) -> None:
    if not low <= value <= high:
        raise InvalidField(f"must be {low} to {high}, is {value}", field)


def at_most(number: int, items: Sequence[object], field: str | None) -> None:
    if len(items) > number:
        raise TooManyItems(f"must have at most {number} items, has {len(items)}", field)


def conflict_rule(name: str) -> OnConflict:
    """The rule that a topic's policy names."""
    try:
        return OnConflict[name.upper()]
    except KeyError:
        raise InvalidField('must be "reject", "keep" or "replace"', "on_conflict") from None


def text_bytes(text: str, field: str) -> int:
    """The size of a text in UTF-8. Refuses text that UTF-8 cannot encode."""
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidField("has an unpaired surrogate, which UTF-8 cannot encode", field) from None


class Checks:
    """All checks, as methods that return nothing or raise."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def topic_name(self, namespace: str, topic: str) -> None:
        check_name(namespace, "namespace")
        check_name(topic, "topic")

    def body(self, body: bytes, max_bytes: int) -> None:
        if len(body) > max_bytes:
            raise BodyTooLarge(f"the body has {len(body)} bytes, the limit is {max_bytes}", "body")

    def count(self, items: Sequence[object], field: str | None = None) -> None:
        at_most(self.limits.max_items, items, field)

    def ids(self, ids: Sequence[str]) -> None:
        self.count(ids, "ids")
        for place, id in enumerate(ids):
            try:
                check_name(id, "id")
            except DuelineError as error:
                error.field = f"[{place}]"
                raise

    def times(
        self, delay_ms: int | None, at_ms: int | None, now_ms: Callable[[], int], max_delay_ms: int | None = None
    ) -> None:
        max_delay_ms = self.limits.max_delay_ms if max_delay_ms is None else max_delay_ms
        if delay_ms is not None:
            if at_ms is not None:
                raise InvalidField("give a delay or a time, not both", "at_ms")
            within(delay_ms, 0, max_delay_ms, "delay_ms")
        elif at_ms is not None:
            if at_ms > now_ms() + max_delay_ms:
                raise InvalidField("is more than 10 years ahead", "at_ms")
            within(at_ms, 0, LAST_MS, "at_ms")

    def lease(self, lease_ms: int) -> None:
        within(lease_ms, 1, self.limits.max_lease_ms, "lease_ms")

    def attempts(self, max_attempts: int) -> None:
        within(max_attempts, 1, self.limits.max_attempts, "max_attempts")

    def tags(self, tags: Sequence[str]) -> None:
        at_most(self.limits.max_tags, tags, "tags")
        for tag in tags:
            self.tag(tag, "tags")
        if len(set(tags)) != len(tags):
            raise InvalidField("has the same tag twice", "tags")

    def tag(self, tag: str, field: str) -> None:
        size = text_bytes(tag, field)
        if not 1 <= size <= self.limits.max_tag_bytes:
            raise InvalidField(f"a tag must have 1 to {self.limits.max_tag_bytes} bytes, this has {size}", field)
        if _CONTROL.search(tag):
            raise InvalidField("a tag has a control character", field)

    def headers(self, headers: Sequence[tuple[str, str]]) -> None:
        at_most(self.limits.max_headers, headers, "headers")
        size = 0
        for name, value in headers:
            if not _HEADER_NAME.fullmatch(name):
                raise InvalidField(f"{name[:40]!r} is not a header name (token characters only)", "headers")
            size += len(name) + text_bytes(value, "headers")
            if _CONTROL.search(value):
                raise InvalidField(f"the value of {name[:40]!r} has a control character", "headers")
        if size > self.limits.max_headers_bytes:
            raise InvalidField(
                f"the headers have {size} bytes, the limit is {self.limits.max_headers_bytes}", "headers"
            )
        if len({name.lower() for name, _ in headers}) != len(headers):
            raise InvalidField("has the same header twice", "headers")

    def retry(self, retry: Retry | None) -> None:
        if retry is None or isinstance(retry, AtOnce):
            return
        if isinstance(retry, Ladder):
            if not retry.waits_ms:
                raise InvalidField("has no waits", "retry.ladder")
            at_most(MAX_WAITS, retry.waits_ms, "retry.ladder")
            for wait_ms in retry.waits_ms:
                within(wait_ms, 0, YEAR_MS, "retry.ladder")
            return
        within(retry.base_ms, 1, YEAR_MS, "retry.base_ms")
        if not 1 <= retry.factor <= 100:
            raise InvalidField("must be 1 to 100", "retry.factor")
        within(retry.max_ms, retry.base_ms, YEAR_MS, "retry.max_ms")
        if not 0 <= retry.jitter <= 1:
            raise InvalidField("must be 0 to 1", "retry.jitter")

    def options(self, job: Send | Patch) -> None:
        """The numbers, tags and headers that a send or a patch may carry."""
        self.own_numbers(job.lease_ms, job.ttl_ms, job.max_attempts, job.retry)
        self.labels(job.tags, job.headers)

    def own_numbers(
        self,
        lease_ms: int | UnsetType | None,
        ttl_ms: int | UnsetType | None,
        max_attempts: int | UnsetType | None,
        retry: Retry | UnsetType | None,
    ) -> None:
        if isinstance(lease_ms, int):
            self.lease(lease_ms)
        if isinstance(ttl_ms, int):
            within(ttl_ms, 1, TEN_YEARS_MS, "ttl_ms")
        if isinstance(max_attempts, int):
            self.attempts(max_attempts)
        if retry:
            self.retry(retry)

    def labels(self, tags: Sequence[str] | UnsetType, headers: Sequence[tuple[str, str]] | UnsetType) -> None:
        if tags:
            self.tags(tags)
        if headers:
            self.headers(headers)

    def merge(self, quiet_ms: int | None, max_wait_ms: int | None, max_items: int | None) -> None:
        """The numbers of a merge group, given by a send or a topic."""
        if quiet_ms is not None:
            within(quiet_ms, 0, self.limits.max_delay_ms, "merge.quiet_ms")
        if max_wait_ms is not None:
            within(max_wait_ms, 0, self.limits.max_delay_ms, "merge.max_wait_ms")
        if max_items is not None:
            within(max_items, 1, MAX_GROUP_ITEMS, "merge.max_items")

    def merge_policy(self, policy: MergePolicy) -> None:
        self.merge(policy.quiet_ms, policy.max_wait_ms, policy.max_items)
        if policy.update not in (None, "once", "always"):
            raise InvalidField('must be "once" or "always"', "merge.update")

    def retention(self, retain_ms: int | None, dead_retain_ms: int | None) -> None:
        if retain_ms is not None:
            within(retain_ms, 0, TEN_YEARS_MS, "retain_ms")
        if dead_retain_ms is not None:
            within(dead_retain_ms, 0, TEN_YEARS_MS, "dead_retain_ms")

    def pull(self, command: Pull) -> None:
        limits, topics = self.limits, command.topics
        within(command.max, 1, limits.max_pull, "max")
        within(command.wait_ms, 0, limits.max_wait_ms, "wait_ms")
        if command.lease_ms is not None:
            self.lease(command.lease_ms)
        if len(topics) != 1:
            if not topics:
                raise InvalidField("names no topic", "topics")
            at_most(MAX_PULL_TOPICS, topics, "topics")
            if len(set(topics)) != len(topics):
                raise InvalidField("has the same topic twice", "topics")

    def pull_partitions(self, partitions: int) -> None:
        """How many partitions one pull would ask, over all its topics."""
        if partitions > MAX_PULL_PARTITIONS:
            raise InvalidField(
                f"have {partitions} partitions in total; one pull takes at most {MAX_PULL_PARTITIONS}: "
                "name fewer topics",
                "topics",
            )

    def refs(self, items: Sequence[Ref | Release | Extend]) -> None:
        """Jobs named by id and lease token, and the options of release and extend."""
        self.count(items)
        for place, item in enumerate(items):
            try:
                check_name(item.id, "id")
                token = item.token
                if token is not None and not (token.isascii() and 0 < len(token) <= MAX_TOKEN_CHARS):
                    raise InvalidField("is not a lease token", "lease")
                if item.__class__ is not Ref:
                    self._ref_options(item)
            except DuelineError as error:
                raise at_place(error, place) from None

    def _ref_options(self, item: Ref | Release | Extend) -> None:
        if isinstance(item, Extend):
            self.lease(item.lease_ms)
        elif isinstance(item, Release):
            if item.delay_ms is not None:
                within(item.delay_ms, 0, self.limits.max_delay_ms, "delay_ms")
            if item.error is not None:
                text_bytes(item.error, "error")

    def query(self, query: Query) -> None:
        within(query.limit, 1, MAX_PAGE, "limit")
        if query.merge_key is not None:
            check_name(query.merge_key, "merge_key")
            others = (query.state, query.tag, query.due_after_ms, query.due_before_ms)
            if any(condition is not None for condition in others):
                raise InvalidField(
                    "cannot be combined with other conditions: it selects all live groups of the key", "merge_key"
                )
        if query.newest and query.tag is not None:
            raise InvalidField("cannot be combined with tag", "newest")
        self.window(query.tag, query.due_after_ms, query.due_before_ms)

    def filter(self, which: Filter, allowed: frozenset[State]) -> None:
        if which.state is not None and which.state not in allowed:
            raise InvalidField(f"must be one of {', '.join(sorted(allowed))}", "filter.state")
        try:
            self.window(which.tag, which.due_after_ms, which.due_before_ms)
        except DuelineError as error:
            error.field = f"filter.{error.field}"
            raise

    def window(self, tag: str | None, after_ms: int | None, before_ms: int | None) -> None:
        if tag is not None:
            self.tag(tag, "tag")
        if after_ms is not None:
            within(after_ms, 0, LAST_MS, "due_after_ms")
        if before_ms is not None:
            within(before_ms, 0, LAST_MS, "due_before_ms")

    def topic_patch(self, patch: TopicPatch) -> None:
        if patch.partitions is not None:
            within(patch.partitions, 1, CELLS, "partitions")
        if patch.of_worker and patch.policy.by_worker:
            raise InvalidField("give set_by or by_worker, not both", "by_worker")
        self.topic_policy(patch.policy)

    def topic_policy(self, policy: TopicPolicy) -> None:
        if policy.lease_ms is not None:
            self.lease(policy.lease_ms)
        if policy.max_attempts is not None:
            self.attempts(policy.max_attempts)
        if policy.ttl_ms is not None:
            within(policy.ttl_ms, 1, TEN_YEARS_MS, "ttl_ms")
        self.retention(policy.retain_ms, policy.dead_retain_ms)
        self.retry(policy.retry)
        if policy.on_conflict is not None:
            conflict_rule(policy.on_conflict)
        if policy.spread_ms is not None:
            within(policy.spread_ms, 0, YEAR_MS, "spread_ms")
        if policy.max_body_bytes is not None:
            within(policy.max_body_bytes, 1, HARD_BODY_BYTES, "max_body_bytes")
        if policy.merge is not None:
            self.merge_policy(policy.merge)
        for name in policy.by_worker:
            if name not in POLICY_FIELDS or getattr(policy, name) is None:
                raise InvalidField(f"{name[:40]!r} has no value in this policy", "by_worker")


def cut_error(text: str) -> str:
    """An error text, cut to the stored size of at most 1 KiB of UTF-8."""
    packed = text.encode()
    return text if len(packed) <= MAX_ERROR_BYTES else packed[:MAX_ERROR_BYTES].decode(errors="ignore")
