#!lua flags=allow-oom
-- pull: lease the earliest deliverable jobs to the waiters of one process, in their order.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected:tolerance or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent   9 process
--        numbers  default lease, wait_ms, max bytes, then per waiter: max, lease_ms (0 = the job's own)
--        blob     token base (8 bytes)
-- RETURN status now note extra (1 unlisted, 2 off duty)   numbers   blob
--        numbers  next (-1 = none), more (0/1), expired leases taken, expired, exhausted, policy version, then per job:
--                 id size, record size, deliveries, uncounted, deadline, due, since when it could be delivered, max, number in the token,
--                 expires (0 = never)
--        blob     per job: id, record (of a group with its items, lib/items); per job that is dead from now on:
--                 reason:1, sized id (only in the first answer)
-- BOUND  max + 100 entries inspected, 1 MiB of records and items; 1,000 items per group
local FIELDS = { 'dp', 'du', 'rt', 'rk', 'ra', 'pv' }
-- include time
-- include head
-- include write
-- include record
-- include judge
-- include items
-- include ends
-- include merge
-- include rate
local N, base, me = cmsgpack.unpack(ARGV[5]), blob, ARGV[9]
local got, pieces, deaths, jobs = {}, {}, {}, 0
local version = tonumber(M.pv or 0) -- of the config that this partition has

local function hand_out(job)
  local record = job.flags % 4 == 3 and record_with_items(job) or job.raw
  put(got, #job.id, #record)
  put(got, job.deliveries, job.uncounted)
  put(got, job.time, job.due)
  put(got, job.since or job.due, job.policy.max)
  put(got, (struct.unpack('>I4', job.token, 9)), job.exp)
  put(pieces, job.id, record)
  jobs = jobs + 1
end

local paused = M.pu and tonumber(M.pu) > now
local full = false -- at the in-flight limit
local tokens = rate and refilled()

-- The earliest time at which another pull could return a job; nil: only after a wake-up.
local function next_time()
  local earliest
  if paused then
    earliest = tonumber(M.pu) < LAST and tonumber(M.pu) or nil
  elseif full then
    local live = redis.call('ZRANGEBYSCORE', l, '(' .. int(now), int(LAST), 'WITHSCORES', 'LIMIT', 0, 1)
    earliest = live[2] and tonumber(live[2])
  else
    for _, key in ipairs({ s, l }) do
      local top = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
      local time = top[2] and tonumber(top[2])
      if time and time <= LAST and (earliest == nil or time < earliest) then
        earliest = time
      end
    end
  end
  return earliest and rate and math.max(earliest, allowed_at(tokens)) or earliest
end

if M.memo and string.sub(M.memo, 1, 8) == nonce then
  -- A repeated call: return the jobs that it leased before and that still have this lease.
  local ids, at = {}, 19
  local size = struct.unpack('>I4', M.memo, 15)
  while at < 19 + size do
    local n = struct.unpack('>I2', M.memo, at)
    ids[#ids + 1] = string.sub(M.memo, at + 2, at + 1 + n)
    at = at + 2 + n
  end
  for _, job in ipairs(load(ids)) do
    if job.phase == 'L' and string.sub(job.token, 1, 8) == base then
      hand_out(job)
    end
  end
  if limited then
    full = redis.call('ZCOUNT', l, '(' .. int(now), int(LAST)) >= tonumber(M.mif)
  end
  local next_at = next_time()
  local numbers = { next_at or -1, next_at and next_at <= now and 1 or 0, 0, 0, 0, version }
  for i = 1, #got do
    numbers[6 + i] = got[i]
  end
  return { 0, now, agenda_note(), M.reg and 0 or 1, cmsgpack.pack(numbers), table.concat(pieces) }
end

local default_lease, wait, max_bytes = N[1], N[2], N[3]
if wait > 0 then
  open_partition()
elseif not known then
  return { 0, now, 0, 0, cmsgpack.pack({ -1, 0, 0, 0, 0, 0 }), '' }
end
local want, expired, exhausted, over, more = 0, 0, 0, 0, false
for i = 4, #N, 2 do
  want = want + N[i]
end
local places = want -- how many jobs the in-flight limit allows
if limited then
  places = math.min(want, tonumber(M.mif) - redis.call('ZCOUNT', l, '(' .. int(now), int(LAST)))
end
local room = rate and math.min(places, whole(tokens)) or places

-- Merges the schedule and the expired leases in order, chunk by chunk. Members of both begin with the send number.
local from_s, from_l = { at = 0 }, { at = 0 }
local function look(side, key, n)
  if not side.list or (side.i > #side.list and not side.dry) then
    side.list = redis.call('ZRANGEBYSCORE', key, '-inf', int(now), 'WITHSCORES', 'LIMIT', side.at, n)
    side.at, side.i, side.dry = side.at + n, 1, #side.list < 2 * n
  end
  return side.list[side.i], side.list[side.i + 1] and tonumber(side.list[side.i + 1])
end

local credit, left = 4, N[4] or 0
local bytes, inspected, bound, empty = 0, 0, want + 100, false
while not paused and jobs < room and inspected < bound and not more and not empty do
  local ids, froms, chunk = {}, {}, room - jobs
  while #ids < chunk do
    local ms, ts = look(from_s, s, chunk)
    local ml, tl = look(from_l, l, chunk)
    if not ms and not ml then
      empty = true
      break
    end
    local side, entry = from_s, ms
    if not ms or (ml and (tl < ts or (tl == ts and struct.unpack('>I5', ml) < struct.unpack('>I5', ms)))) then
      side, entry = from_l, ml
    end
    side.i = side.i + 2
    put(ids, string.sub(entry, 6))
    put(froms, entry)
  end
  for i, job in ipairs(load(ids)) do
    inspected = inspected + 1
    local state, group = job.state, job.raw and job.flags % 4 == 3
    if state == 'r' and group and job.phase == 'L' and give_to_open(job) then
      -- it failed, and its items are now in the open group of its key
    elseif state == 'r' then
      local size = #job.raw
      if group then
        read_meta(job, g)
        size = size + job.bytes
      end
      if bytes > 0 and bytes + size > max_bytes then
        more = true
        break
      end
      bytes = bytes + size
      if group and job.fresh and redis.call('HGET', g, 'k' .. read_group(job)) == job.id then
        redis.call('HDEL', g, 'k' .. job.key) -- its first pull closes it
      end
      while left == 0 do
        credit = credit + 2
        left = N[credit]
      end
      left = left - 1
      local lease = N[credit + 1]
      if lease == 0 then
        lease = job.policy.lease > 0 and job.policy.lease or default_lease
      end
      job.since = job.at
      if job.phase == 'L' then
        over = over + 1
      else
        collect('rs', froms[i])
      end
      job.deliveries, job.time, job.changed = job.deliveries + 1, math.min(start + lease, LAST), start
      job.token = base .. struct.pack('>I4', jobs)
      collect('hr', job.id, run_text(job, 'L'))
      collect('zl', int(job.time), froms[i])
      if job.policy.max > 0 and job.deliveries - job.uncounted >= job.policy.max then
        collect('za', int(job.time), 'e' .. job.id)
        work_at(job.time)
      end
      hand_out(job)
    elseif state == 'X' or job.gone then
      local reason = job.reason
      if reason == EXHAUSTED then
        exhausted = exhausted + 1
      else
        expired = expired + 1
      end
      put(deaths, struct.pack('>BI2c0', reason, #job.id, job.id))
      bury(job, reason, job.at)
    else
      -- The entry has no readable record: remove it from the schedule and keep it for fsck.
      collect('rs', froms[i])
      collect('rl', froms[i])
      collect('zd', int(now), 'b' .. job.id)
      count('nB', 1)
    end
  end
end
if (inspected >= bound and not empty) or (flushed and jobs < room) then
  more = true
end

local ids = {}
for i = 1, #pieces, 2 do
  put(ids, struct.pack('>I2', #pieces[i]) .. pieces[i])
end
local memo = table.concat(ids)
if wait > 0 and (not M.wu or tonumber(M.wu) < now + wait) then
  put(set, 'wu', int(now + wait + 5000))
end

local numbers = { 0, more and 1 or 0, over, expired, exhausted, version }
for i = 1, #got do
  numbers[6 + i] = got[i]
end
local mine = M.dp == me
local off_duty = wait > 0 and not mine and M.du ~= nil and tonumber(M.du) > now and jobs == 0
-- `finish` writes first; only then do the indexes show the remaining jobs.
full = limited and jobs >= places and places < want
if rate then
  tokens = tokens - jobs
  if jobs > 0 or tonumber(M.ra) > now then
    keep_tokens(tokens)
  end
end
if jobs == 0 and wait == 0 then
  M.reg = '1' -- a pull that found nothing is no reason to register a topic
end
local reply = finish(numbers, table.concat(pieces) .. table.concat(deaths), struct.pack('>I4', #memo) .. memo)
local next_at = next_time()
if wait > 0 and not off_duty then
  local until_at = math.min((next_at or now) + 1000, now + wait + 1000)
  if not mine or tonumber(M.du) < until_at - 500 then
    redis.call('HSET', m, 'dp', me, 'du', int(until_at))
  end
end
numbers[1] = next_at or -1
reply[5] = cmsgpack.pack(numbers)
reply[4] = reply[4] + (off_duty and 2 or 0)
return reply
