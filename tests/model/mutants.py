"""Rules broken on purpose, one each: a model test that stays green with any of them proves nothing.

A mutant is a piece of a Lua file and what stands there instead. It must be found by the machine named with it.
"""

from __future__ import annotations

import msgspec


class Mutant(msgspec.Struct, frozen=True):
    """`old` stands in `file` (below store/lua) exactly as written here; every place of it is changed."""

    name: str
    machine: str  # life | sleepers
    file: str
    old: str
    new: str

    def patch(self, name: str, source: str) -> str:
        if name != self.file:
            return source
        assert self.old in source, f"{self.name}: {self.file}.lua has changed, the mutant no longer says anything"
        return source.replace(self.old, self.new)


REPEAT = "if memo and string.sub(memo, 1, 8) == nonce then"
ATTEMPTS = "elseif job.policy.max > 0 and job.deliveries - job.uncounted >= job.policy.max then"

MUTANTS = (
    # wake-ups
    Mutant("a release wakes nobody", "sleepers", "release", "deliverable_at(due)", ""),
    Mutant("an edit wakes nobody", "sleepers", "edit", "deliverable_at(time)", ""),
    Mutant("a revive wakes nobody", "sleepers", "dead", "  deliverable_at(due)\n", ""),
    Mutant("a send wakes nobody", "sleepers", "send", "deliverable_at(due)", ""),
    Mutant("a freed place wakes nobody", "sleepers", "lib/write", "or (freed and limited)", ""),
    Mutant("cancel and replace free no place", "sleepers", "lib/ends", "freed = true", "freed = freed"),
    Mutant(
        "a resumed line wakes nobody",
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
    Mutant(
        "a repeated pull leases again",
        "life",
        "pull",
        "if M.memo and string.sub(M.memo, 1, 8) == nonce then",
        "if false then",
    ),
    Mutant("a repeated call acts again", "life", "lib/write", REPEAT, "if false then"),
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
        "lib/record",
        "return struct.pack('>I5', seq_number) .. id",
        "return struct.pack('>I5', 0) .. id",
    ),
    Mutant("an edit keeps its place", "life", "edit", "    seq = seq + 1\n", ""),
    Mutant("the dead are counted for ever", "life", "lib/ends", "count(COUNTER[job.reason], -1)", ""),
    Mutant("tags outlive their jobs", "life", "lib/ends", "put(out.rk, entry)", ""),
    Mutant(
        "a replaced job stays in line", "life", "send", "forget(old)\n        store(i, REPLACED)", "store(i, REPLACED)"
    ),
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
)
