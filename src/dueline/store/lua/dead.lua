#!lua flags=allow-oom
-- dead: revive dead jobs or purge ended ones, by id or the oldest dead ones.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  what (1 revive, 2 purge), limit (0 = by ids), delay, max attempts (-1 leave, 0 no limit), the budget of
--                 histories (lib/history), then the sizes of the ids
--        blob     the ids
-- RETURN status now note extra numbers (per job: id size, code, due, version)   blob (ids)
-- BOUND  O(n log N), n <= 500
local FIELDS = { 'ep', 'hb' }
-- include time
-- include head
-- include tools
-- include reply
-- include write
-- include record
-- include judge
-- include items
-- include ends
-- include codes
if again then
  return earlier_reply()
end
-- include lost
local N, ids, at = cmsgpack.unpack(ARGV[5]), {}, 1
local what, limit, delay, max, budget = N[1], N[2], N[3], N[4], N[5]
-- include history
for i = 6, #N do
  ids[i - 5] = string.sub(blob, at, at + N[i] - 1)
  at = at + N[i]
end
if limit > 0 then
  for _, entry in ipairs(redis.call('ZRANGE', d, 0, limit - 1)) do
    if string.sub(entry, 1, 1) == 'x' then
      put(ids, string.sub(entry, 2))
    end
  end
end

local function revive(job)
  local due = delay == 0 and now or math.min(start + delay, LAST)
  if not job.written then
    leave(job)
  else
    collect('rd', 'x' .. job.id)
    collect('ra', 't' .. job.id)
    count(COUNTER[job.reason], -1)
  end
  seq = seq + 1
  local flags, number, rest = job.flags, job.number, string.sub(job.raw, 14)
  if max >= 0 then
    local text = string.sub(job.policy.text, 1, 4) .. struct.pack('>I4', max) .. string.sub(job.policy.text, 9)
    local sections = job.inline and 15 + #job.inline or 13
    flags = job.inline and flags or flags + 64
    number, rest = 0, string.sub(rest, 1, 12) .. struct.pack('>I2', #text) .. text .. string.sub(rest, sections)
  end
  collect('hj', job.id, struct.pack(HEAD, flags, number, seq, job.created) .. rest)
  remember(job, DIED + job.reason - 1, job.at, job.deliveries - job.uncounted, nil, nil, job.error)
  remember(job, REVIVED, start, 0, due)
  job.reason, job.uncounted, job.given, job.token = 0, job.deliveries, 0, NO_TOKEN
  job.time, job.due, job.exp, job.changed = due, due, job.ttl and math.min(due + job.ttl, LAST) or 0, start
  collect('hr', job.id, run_text(job, 'W'))
  collect('zs', int(due), member(seq, job.id))
  if job.exp > 0 then
    collect('za', int(job.exp), 'x' .. job.id)
    work_at(job.exp)
  end
  if flags % 4 == 3 then -- an ended group stays closed, even if only time has ended it
    if redis.call('HGET', g, 'k' .. read_group(job)) == job.id then
      redis.call('HDEL', g, 'k' .. job.key)
    end
    collect('zk', 0, group_entry(job))
  end
  deliverable_at(due)
  return due
end

local results, pieces = {}, {}
for _, job in ipairs((known or topic) and load(ids) or {}) do
  local code, due, state = OK, 0, job.state
  if state == 'E' then
    code = ELSEWHERE
  elseif what == 1 then
    if state == 'X' then
      due = revive(job)
    else
      code = NOT_FOUND
    end
  elseif state == 'X' or state == 'D' or state == 'C' then
    forget(job)
  else
    code = NOT_FOUND
  end
  put(results, #job.id, code)
  put(results, due, code == OK and what == 1 and seq or 0)
  put(pieces, job.id)
end
if not known and not topic then
  for _, id in ipairs(ids) do
    put(results, #id, NOT_FOUND)
    put(results, 0, 0)
    put(pieces, id)
  end
end
return finish(results, table.concat(pieces))
