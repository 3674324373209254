#!lua flags=allow-oom
-- clean: record what is already true: expired jobs, expired leases of last attempts, ended retention. Safe to repeat.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected:tolerance or ""   3 caller   4 nonce   5 numbers   6 ""   7 channel   8 permanent
--        numbers  limit
-- RETURN status now 0 0 numbers (expired, exhausted, purged, dead trimmed, next or -1, more)
--        blob (per job that is dead from now on: reason:1, sized id; only in the first answer)
-- BOUND  200 entries of the agenda, 2,000 items of groups, 100 fields of the partition
local FIELDS = { 'hc' }
-- include time
-- include head
-- include write
-- include record
-- include judge
-- include items
-- include ends
if not known then
  return { 0, now, 0, 0, cmsgpack.pack({ 0, 0, 0, 0, -1, 0 }), '' }
end

-- What this step did, and what remains. Stores the time of the directory's next hint in the partition.
local function answer(numbers, deaths)
  local top = redis.call('ZRANGE', a, 0, 0, 'WITHSCORES')
  local time = top[2] and tonumber(top[2])
  if time and time <= LAST then
    numbers[5], numbers[6] = math.min(math.ceil(time / 10000) * 10000, LAST), time <= now and 1 or 0
  else
    numbers[5], numbers[6] = -1, 0
  end
  if numbers[5] > 0 or M.ag then
    redis.call('HSET', m, 'ag', int(math.max(numbers[5], 0)))
  end
  return { 0, now, 0, 0, cmsgpack.pack(numbers), deaths or '' }
end

local again = earlier_reply()
if again then
  return answer(cmsgpack.unpack(again[5]))
end
local limit = cmsgpack.unpack(ARGV[5])[1]
local entries = redis.call('ZRANGEBYSCORE', a, '-inf', int(now), 'LIMIT', 0, limit)
local ids, handled = {}, {}
for i, entry in ipairs(entries) do
  ids[i] = string.sub(entry, 2)
end
local expired, exhausted, purged, trimmed, items = 0, 0, 0, 0, 0
local deaths = {}
local ended = {} -- fences of schedules that are gone

local function drop_fence(schedule)
  put(ended, 'o:' .. schedule)
  count('on', -1)
end

for i, job in ipairs(load(ids)) do
  if items > 1000 then
    break -- groups with many items: the rest is left to the next step
  end
  local entry, kind = entries[i], string.sub(entries[i], 1, 1)
  collect('ra', entry) -- entries that are still needed are added again below; removals are written first
  if kind == 'o' then
    drop_fence(job.id)
  elseif handled[job.id] then
    -- already handled by its other entry
  elseif job.gone then
    handled[job.id] = true
    if not job.written then
      bury(job, job.reason, job.at)
      trimmed = trimmed + 1
    else
      if job.phase == 'X' then
        trimmed = trimmed + 1
      else
        purged = purged + 1
      end
      forget(job)
    end
  elseif job.state == 'X' and not job.written then
    handled[job.id] = true
    if job.reason == EXHAUSTED then
      exhausted = exhausted + 1
    else
      expired = expired + 1
    end
    put(deaths, struct.pack('>BI2c0', job.reason, #job.id, job.id))
    bury(job, job.reason, job.at)
  elseif kind == 'x' and job.state == 'l' then
    collect('za', int(job.time), entry)
  elseif kind == 'x' and job.state and not job.written and job.exp > now then
    collect('za', int(job.exp), entry)
  elseif kind == 'e' and job.state == 'l' and job.policy.max > 0 and job.deliveries - job.uncounted >= job.policy.max then
    collect('za', int(job.time), entry)
  elseif kind == 't' and job.written then
    collect('za', int(job.time), entry)
  end
  items = items + (job.count or 0)
end

-- Remembered calls of processes that are gone.
local scan = redis.call('HSCAN', m, M.hc or '0', 'MATCH', 'c:*', 'COUNT', 100)
local stale = {}
for i = 1, #scan[2], 2 do
  if struct.unpack('>I6', scan[2][i + 1], 9) < now - 3600000 then
    put(stale, scan[2][i])
  end
end
for _, fields in ipairs({ stale, ended }) do
  if #fields > 0 then
    grouped('HDEL', m, fields)
  end
end
if (M.hc or '0') ~= scan[1] then
  put(set, 'hc', scan[1])
end
local numbers = { expired, exhausted, purged, trimmed }
finish(numbers, '')
return answer(numbers, table.concat(deaths))
