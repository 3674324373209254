"""Rules broken on purpose, one each: a model test that stays green with any of them proves nothing.

A mutant is a piece of a Lua file and what stands there instead. It must be found by the machine named with it.
"""

from __future__ import annotations

import msgspec


class Mutant(msgspec.Struct, frozen=True):
    """`old` stands in `file` (below store/lua) exactly as written here; every place of it is changed."""

    name: str
    machine: str  # of started.MACHINES
    file: str
    old: str
    new: str

    def patch(self, name: str, source: str) -> str:
        if name != self.file:
            return source
        assert self.old in source, f"{self.name}: {self.file}.lua has changed, the mutant no longer says anything"
        return source.replace(self.old, self.new)


ATTEMPTS = "elseif job.policy.max > 0 and job.deliveries - job.uncounted >= job.policy.max then"

EARLIER = (
    "if b_at > into.count or (a_at <= job.count"
    " and struct.unpack('>I5', from[a_at]) < struct.unpack('>I5', there[b_at])) then"
)

MUTANTS = (
    # wake-ups
    Mutant("a release wakes nobody", "sleepers", "release", "deliverable_at(due)", ""),
    Mutant("an edit wakes nobody", "sleepers", "edit", "deliverable_at(time)", ""),
    Mutant("a revive wakes nobody", "sleepers", "dead", "  deliverable_at(due)\n", ""),
    Mutant("a send wakes nobody", "sleepers", "send", "deliverable_at(due)", ""),
    Mutant("a usual send wakes nobody", "sleepers", "send", "  if wake then\n", "  if false then\n"),
    Mutant("a freed place wakes nobody", "sleepers", "lib/write", "or (freed and limited)", ""),
    Mutant("cancel and replace free no place", "sleepers", "lib/ends", "freed = true", "freed = freed"),
    Mutant(
        "a resumed partition wakes nobody",
        "sleepers",
        "control",
        "if before > now and N[2] < before and waited then",
        "if false then",
    ),
    Mutant("a raised limit wakes nobody", "sleepers", "control", "if waited and limited and", "if false and"),
    Mutant(
        "next without the leases",
        "sleepers",
        "pull",
        "for _, key in ipairs({ s, l }) do",
        "for _, key in ipairs({ s }) do",
    ),
    # repeats
    Mutant("a repeated pull leases again", "life", "pull", "again", "false"),
    Mutant("a repeated send acts again", "life", "send", "again", "false"),
    Mutant("a repeated ack acts again", "life", "ack", "again", "false"),
    Mutant("a repeated call acts again", "life", "lib/head", "sub(V[1], 1, 8) == nonce", "false"),
    # what the usual case leaves to the rest of its script
    Mutant("a usual send does not see an end", "life", "send", "records[place] or runs[place]", "records[place]"),
    Mutant("a usual send replaces", "life", "send", "records[place] or runs[place]", "runs[place]"),
    Mutant("a usual send does not index a tag", "life", "send", " and N[o + 2] % 32 < 16", ""),
    Mutant(
        "a usual send forgets the ttl",
        "life",
        "send",
        "      if ttl > 0 then\n        local ends",
        "      if false then\n        local ends",
    ),
    Mutant("a usual pull does not see an expired lease", "life", "pull", "if next_at <= now then", "if false then"),
    Mutant("a usual pull does not see a pause", "life", "pull", " or (V[7] and V[7] + 0 > now)", ""),
    Mutant("a usual pull does not see the in-flight limit", "life", "pull", "(V[3] and V[3] + 0 > 0)", "false"),
    Mutant("a usual pull delivers an expired job", "life", "pull", "if exp > 0 and exp <= now then", "if false then"),
    Mutant(
        "a usual pull counts no delivery",
        "life",
        "pull",
        "      deliveries = deliveries + 1\n",
        "      deliveries = 1\n",
    ),
    Mutant(
        "a usual pull is before the schedule in its next", "sleepers", "pull", "math.min(next_at, next_due)", "next_at"
    ),
    Mutant("a usual pull has no deadlines in its next", "sleepers", "pull", "          next_at = deadline\n", ""),
    Mutant(
        "a usual pull does not note its last attempt",
        "life",
        "pull",
        "if max > 0 and deliveries - uncounted >= max then\n        agenda",
        "if false then\n        agenda",
    ),
    Mutant(
        "a usual pull closes no group",
        "only groups",
        "pull",
        "if flags % 4 == 3 or flags % 128 > 63 then",
        "if false then",
    ),
    Mutant("any token acks in the usual case", "life", "ack", " and sub(run, 36, 47) ~= token", " and false"),
    Mutant("a usual ack drops a kept body", "life", "ack", "if bodies == 0 then", "if true then"),
    Mutant("a usual ack is never too late", "life", "ack", " or time <= now or", " or"),
    Mutant("a usual ack is not counted", "life", "ack", "(V[7] or 0) + n)", "(V[7] or 0) + 0)"),
    Mutant("a usual ack wakes nobody at the limit", "sleepers", "ack", " or (V[3] and V[3] + 0 > 0)", ""),
    # histories
    Mutant("a usual delivery has no history", "life", "pull", "if budget > 0 then -- as", "if false then -- as"),
    Mutant(
        "a usual delivery tells the wrong attempt or consumer",
        "life",
        "pull",
        "if attempt ~= last_attempt or by ~= last_by then",
        "if last_attempt == nil then",
    ),
    Mutant(
        "a release has no history",
        "life",
        "release",
        "      remember(job, RELEASED, start, attempt, due, nil, text)\n",
        "",
    ),
    Mutant("an edit before the first delivery is not told", "life", "edit", "not job.fresh or", "not job.fresh and"),
    Mutant("a history is counted for ever", "life", "lib/ends", "count('hb', -history_bytes(job))", ""),
    Mutant("a usual ack counts a history for ever", "life", "ack", "if dropped > 0 then", "if false then"),
    Mutant("a usual ack forgets the history", "life", "ack", "= sub(run, 2, 11),", "= '\\0' .. sub(run, 3, 11),"),
    # time
    Mutant(
        "retention counts from the clean-up",
        "life",
        "clean",
        "bury(job, job.reason, job.at)",
        "bury(job, job.reason, now)",
    ),
    Mutant("one attempt too many", "life", "lib/judge", ATTEMPTS, ATTEMPTS.replace(">=", ">")),
    Mutant(
        "a retry wait moves the expiry",
        "life",
        "release",
        "job.time, job.due, job.changed = due, due, start",
        "job.time, job.due, job.changed = due, due, start; job.exp = job.exp > 0 and job.exp + due or 0",
    ),
    Mutant(
        "extend shortens",
        "life",
        "extend",
        "math.max(job.time, math.min(start + N[3 * i], LAST))",
        "math.min(start + N[3 * i], LAST)",
    ),
    Mutant(
        "a leased job expires under its holder",
        "life",
        "lib/judge",
        "if job.time > now then\n      job.state = 'l'",
        "if job.time > now and not (job.exp > 0 and job.exp <= now) then\n      job.state = 'l'",
    ),
    # order and indexes
    Mutant(
        "order by id within a millisecond",
        "life",
        "lib/tools",
        "return struct.pack('>I5', seq_number) .. id",
        "return struct.pack('>I5', 0) .. id",
    ),
    Mutant("an edit keeps its place", "life", "edit", "    seq = seq + 1\n", ""),
    Mutant("the dead are counted for ever", "life", "lib/ends", "count(COUNTER[job.reason], -1)", ""),
    Mutant("tags outlive their jobs", "life", "lib/ends", "collect('rk', entry)", ""),
    Mutant(
        "a replaced job stays in partition",
        "life",
        "send",
        "forget(old)\n        if closed",
        "if closed",
    ),
    # closed partitions
    Mutant("a closed partition takes a usual send", "life", "send", "agrees and is_open", "agrees"),
    Mutant("a closed partition takes new ids", "life", "send", "  if closed then\n    moved()", "  if false then"),
    Mutant(
        "a namespace does not close its partitions",
        "namespace_ids groups",
        "lib/closed",
        "closed = tonumber(redis.call('HGET', j, ''))",
        "closed = nil",
    ),
    Mutant("a closed partition opens groups", "only groups", "append", "elseif closed then", "elseif false then"),
    Mutant(
        "an overdue job is as any live one", "life", "lib/judge", "job.exp > 0 and job.exp <= now\nend", "false\nend"
    ),
    Mutant("a tag is not indexed when its job is sent", "life", "send", "    collect('zk', 0, entry)\n", ""),
    # tokens
    Mutant(
        "any token acks",
        "life",
        "ack",
        "elseif token ~= '' and (job.phase ~= 'L' or token ~= job.token) then",
        "elseif token ~= '' and job.phase ~= 'L' then",
    ),
    Mutant("a stale token extends", "life", "extend", "or tokens[i] ~= job.token then", "then"),
    Mutant(
        "edit under a running lease",
        "life",
        "edit",
        "elseif state == 'l' then",
        "elseif state == 'never' then",
    ),
    # merge groups
    Mutant(
        "a group is left open at its first pull",
        "only groups",
        "pull",
        "redis.call('HDEL', g, 'k' .. job.key) -- its first pull closes it",
        "",
    ),
    Mutant(
        "a repeated append adds again",
        "only groups",
        "append",
        "if again then\n  return earlier_reply()\nend",
        "",
    ),
    Mutant(
        "a call that only adds an item is not remembered",
        "only groups",
        "lib/merge",
        "count('g', 0) -- the call has changed something",
        "",
    ),
    Mutant(
        "items are given behind the open group's own",
        "only groups",
        "lib/merge",
        EARLIER,
        "if b_at > into.count then",
    ),
    Mutant(
        "items are given in front, whatever was sent first",
        "only groups",
        "lib/merge",
        EARLIER,
        "if a_at <= job.count then",
    ),
    Mutant(
        "an ended group leaves its items behind",
        "only groups",
        "lib/ends",
        "redis.call('HDEL', home, unpack(fields))",
        "",
    ),
    Mutant(
        "an ended group stands as the open one",
        "only groups",
        "lib/ends",
        "redis.call('HDEL', home, 'k' .. job.key)",
        "",
    ),
    Mutant(
        "a group that time ended takes items",
        "only groups",
        "lib/merge",
        "group.fresh and (group.state == 's' or group.state == 'r') then",
        "group.fresh then",
    ),
    Mutant("a full group wakes nobody", "group sleepers", "lib/merge", "  deliverable_at(due)\n", ""),
    Mutant("a full group waits for its time", "only groups", "lib/merge", "    move(group, now)\n", ""),
    Mutant(
        "a full group stays open",
        "only groups",
        "lib/merge",
        "if group.count >= group.max_items then",
        "if group.count > group.max_items then",
    ),
    Mutant(
        "a full group that should wait does not",
        "only groups",
        "lib/merge",
        " and not group.waits then",
        " then",
    ),
    Mutant(
        "the longest wait is forgotten",
        "only groups",
        "append",
        "math.min(wanted_at(send), group.cap)",
        "wanted_at(send)",
    ),
    Mutant("the ttl does not follow the due time", "only groups", "lib/merge", "if group.ttl then", "if false then"),
    Mutant(
        "a group given back unused gives its items",
        "only groups",
        "release",
        "job.flags % 4 == 3 and counts_one and give_to_open(job)",
        "job.flags % 4 == 3 and give_to_open(job)",
    ),
    Mutant(
        "a lost lease is delivered beside an open group",
        "only groups",
        "pull",
        "job.phase == 'L' and give_to_open(job) then",
        "false then",
    ),
    Mutant(
        "an opening takes nothing that waits",
        "only groups",
        "append",
        "    if give(job, group) then",
        "    if false then",
    ),
    Mutant(
        "an opening takes what its holder may still ack",
        "only groups",
        "append",
        "and job.phase == 'W' and",
        "and not job.fresh and",
    ),
    Mutant(
        "more items than a group may have",
        "only groups",
        "lib/merge",
        "job.count + into.count > into.max_items or ",
        "",
    ),
    Mutant(
        "ids of moved items are forgotten",
        "only groups",
        "lib/merge",
        "put(sets, prefix .. item_id(value), into.id)",
        "",
    ),
    Mutant(
        "the ids of an ended group are forgotten with its items",
        "only groups",
        "lib/ends",
        "key .. table.concat(ids))",
        "key)",
    ),
    Mutant(
        "an item sent again is forgotten when its old group is cleaned away",
        "only groups",
        "lib/ends",
        "if holder == job.id then",
        "if true then",
    ),
    Mutant(
        "a revived group is open again",
        "only groups",
        "dead",
        "redis.call('HDEL', g, 'k' .. job.key)",
        "",
    ),
    Mutant("a revived group is not found by its key", "only groups", "dead", "collect('zk', 0, group_entry(job))", ""),
    Mutant(
        "a group keeps its place in the list of its key",
        "only groups",
        "lib/ends",
        "collect('rk', group_entry(job))",
        "",
    ),
    Mutant(
        "cancel spares nobody",
        "only groups",
        "cancel",
        "elseif state == 'l' and spare_leased then",
        "elseif false then",
    ),
    # the forecast's index of retries
    Mutant("a released job is no retry", "life", "release", "if attempts > 0 then", "if false then"),
    Mutant("an edited retry is none", "life", "edit", "if job.deliveries > job.uncounted then", "if false then"),
    Mutant("a delivered retry still waits", "life", "pull", "deliveries > uncounted", "false"),
    Mutant("an ended retry still waits", "life", "lib/ends", "job.deliveries > job.uncounted", "false"),
    # schedules
    Mutant("an occurrence is sent again", "schedules", "lib/fence", "fence.version >= 0 and at <= fence.at", "false"),
    Mutant("an older version sends", "schedules", "lib/fence", "if version < fence.version or", "if"),
    Mutant(
        "a schedule that is gone sends",
        "schedules",
        "lib/fence",
        "(version == fence.version and fence.gone > 0)",
        "false",
    ),
    Mutant("a fence is lowered", "schedules", "lib/fence", "math.max(fence.at, at)", "at"),
    Mutant(
        "an older fence is written",
        "schedules",
        "lib/fence",
        "  if version < fence.version then\n",
        "  if false then\n",
    ),
    Mutant("a gone schedule never returns", "schedules", "lib/fence", "    fence.gone = 0\n", ""),
    Mutant("a sent occurrence is not remembered", "schedules", "send", "keep_fences()", ""),
    Mutant("an occurrence takes somebody's job", "schedules", "send", "not occurrence and (", "("),
    Mutant("a partition with fences retires", "schedules", "control", "tonumber(M.on or 0) > 0", "false"),
    Mutant(
        "any version is replaced",
        "schedules",
        "send",
        "if replaced[i] ~= (live and old.seq or 0) then",
        "if false then",
    ),
    Mutant("a replace forgets the progress", "schedules", "send", "if live and old.progress then", "if false then"),
    Mutant("a release forgets the progress", "schedules", "release", "if progress then", "if false then"),
    Mutant("a release to a time counts from now", "schedules", "release", "math.max(-wait, now)", "start - wait"),
)
