#!lua flags=allow-oom
-- pull: lease the earliest deliverable jobs to the waiters of one process, in their order.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent   9 process
--        numbers  default lease, wait_ms, max bytes, budget of histories (lib/history), then per run of waiters that are alike:
--                 max of all of them, lease_ms (0 = the job's own)
--        blob     token base (8 bytes), then nothing, or per run its sized name (one byte of size)
-- RETURN status now note extra (1 unlisted, 2 off duty)   numbers   blob           (lib/reply)
--        numbers  next (-1 = none), more (0/1), expired leases taken, expired, exhausted, policy version, count of jobs, then per
--                 job with a progress: its number in the token, size of the progress
--        blob     per job: the first 17 bytes of its run (lib/record), max:4 id size:2 record size:4 number in the token:4, as doubles
--                 due, since when it could be delivered and expires (0 = never), the id; then the records (of a
--                 group with its items, lib/items); then the progresses; per job that is dead from now on: reason:1, sized id
--                 (only in the first answer)
-- BOUND  max + 100 entries inspected, 1 MiB of records and items; 1,000 items per group
local N = cmsgpack.unpack(ARGV[5])
local FIELDS = N[2] > 0 and { 'pu', 'rt', 'pv', 'p1', 'hb', 'dp', 'du' } or { 'pu', 'rt', 'pv', 'p1', 'hb' }
-- include time
-- include head
local base, me = sub(blob, 1, 8), ARGV[9]
local default_lease, wait, max_bytes, budget, want = N[1], N[2], N[3], N[4], 0
for i = 5, #N, 2 do
  want = want + N[i]
end
local who -- the names of the waiters
if #blob > 8 then
  local at = 9
  who = {}
  for i = 5, #N, 2 do
    who[i], at = read('>Bc0', blob, at)
  end
end

-- The usual case: no pause, no limits, no expired leases; due jobs that can be delivered, with policies that the partition knows.
-- `break`: another case, and nothing was written.
repeat
  if again or not V[2] or want > 1000 or (V[3] and V[3] + 0 > 0) or (V[7] and V[7] + 0 > now) or (V[8] and V[8] + 0 > 0) then
    break
  end
  local next_at = call('ZRANGE', l, 0, 0, 'WITHSCORES')[2]
  next_at = next_at and next_at + 0 or LAST + 1
  if next_at <= now then
    break
  end
  local entries = call('ZRANGE', s, 0, want, 'WITHSCORES') -- and one more, to see when it is due
  local ids, n, next_due = { unpack(entries, 1, want) }, 0, LAST + 1
  local score, time -- of the last entry; the next one often has the same
  for i = 1, #entries, 2 do
    if entries[i + 1] ~= score then
      score = entries[i + 1]
      time = score + 0
    end
    if time > now or n == want then
      next_due = time
      break
    end
    n = n + 1
    ids[n], entries[i + 1] = sub(entries[i], 6), time
  end
  local heads, records, more, soonest, agenda, retried = '', {}, 0, nil, nil, nil
  local progresses, places = nil, nil -- where they are
  local used, dropped = V[11] or 0, 0 -- of the budget of histories
  if n > 0 then
    records = call('HMGET', j, unpack(ids, 1, n))
    local runs, started = call('HMGET', r, unpack(ids, 1, n)), { unpack(entries, 1, 2 * n) }
    local policy, own_lease, max, lease, deadline, text = -1, nil, nil, -1, nil, nil -- of the last job; the next one often has the same
    local counts, counted, last_reason, last_deliveries, last_uncounted, last_given -- how its run begins, and from what
    local tail = pack('>I6c0', start, base)
    local credit, left, bytes, taken = 5, N[5], 0, 0
    local last_attempt, last_by, whole -- the history of the last delivery: its attempt, to whom, and a history of only its entry
    for i = 1, n do
      local id, record, run, entry, time = ids[i], records[i], runs[i], entries[2 * i - 1], entries[2 * i]
      if not record or #record < 25 or sub(record, 3, 7) ~= sub(entry, 1, 5) then
        break
      end
      local flags, number = string.byte(record, 1, 2)
      if flags % 4 == 3 or flags % 128 > 63 then
        break -- a merge group; a policy of its own
      end
      local reason, deliveries, uncounted, given, due, exp, rest, at = 0, 0, 0, 0, time, 0, '', 26
      local past, history, progress = '', 0, nil -- and how many entries it has
      if flags > 127 then -- the record names its topic
        at = 28 + #(topic or '')
        if sub(record, 26, at - 1) ~= pack('>I2', at - 28) .. (topic or '') then
          break
        end
      end
      if run then
        local phase, waits_until
        phase, reason, deliveries, uncounted, given, waits_until, due, exp = read('>BBI4I4BI6I6I6', run)
        if phase ~= 87 or waits_until ~= time then -- W
          break
        end
        if reason % 128 > 63 then
          history, past = read('>BI2c0', run, 48)
        end
        if reason > 127 then
          progress = read('>I2c0', run, history > 0 and 51 + #past or 48)
        end
        rest = sub(run, 48) -- history, progress, last error
      elseif flags % 8 > 3 then
        if #record < at + 5 then
          break
        end
        exp = time + read('>I6', record, at)
      end
      if exp > 0 and exp <= now then
        break
      end
      if number ~= policy then
        local stored = number == 1 and V[10] or call('HGET', m, 'p' .. number)
        if not stored or #stored < 30 then
          break
        end
        policy, own_lease, max = number, read('>I4I4', stored)
      end
      if i > 1 and bytes + #record > max_bytes then
        more, next_due, n = 1, time, taken
        break
      end
      bytes = bytes + #record
      while left == 0 do
        credit = credit + 2
        left = N[credit]
      end
      left = left - 1
      local wanted = N[credit + 1]
      if wanted == 0 then
        wanted = own_lease > 0 and own_lease or default_lease
      end
      if wanted ~= lease then
        lease, deadline = wanted, math.min(start + wanted, LAST)
        text = string.format('%d', deadline)
        if deadline < next_at then
          next_at = deadline
        end
      end
      if deliveries > uncounted then
        retried = retried or {}
        retried[#retried + 1] = 'w' .. id -- lib/retries
      end
      deliveries = deliveries + 1
      if budget > 0 then -- as lib/history does it
        local attempt, by = deliveries - uncounted, who and who[credit]
        if attempt ~= last_attempt or by ~= last_by then
          local name = by and by ~= '' and pack('>Bc0', #by, by) or ''
          last_attempt, last_by = attempt, by
          whole = pack('>BI2BBI6I3c0', 1, 11 + #name, #name, name == '' and 1 or 33, start, attempt, name)
        end
        local from = history > 9 and 12 + string.byte(past) or 1
        local grows = #whole - 2 - from + (history == 0 and 32 or 0)
        if used + grows > budget then
          dropped = dropped + 1
        else
          used = used + grows
          if history == 0 then
            reason, rest = reason + 64, rest == '' and whole or whole .. rest
          else
            rest = pack('>BI2c0c0c0', math.min(history + 1, 10), #past + #whole - 2 - from, sub(past, from), sub(whole, 4), sub(run, 51 + #past))
          end
        end
      end
      if deadline ~= counted or deliveries ~= last_deliveries or reason ~= last_reason or uncounted ~= last_uncounted or given ~= last_given then
        counts = pack('>BBI4I4BI6', 76, reason, deliveries, uncounted, given, deadline)
        counted, last_reason, last_deliveries, last_uncounted, last_given = deadline, reason, deliveries, uncounted, given
      end
      started[2 * i - 1] = id
      started[2 * i] = pack('>c0I6I6c0I4c0', counts, due, exp, tail, taken, rest)
      entries[2 * i - 1], entries[2 * i] = text, entry
      runs[i] = pack('>c0I4I2I4I4dddc0', counts, max, #id, #record, taken, due, time, exp, id)
      if progress then
        progresses, places = progresses or {}, places or {}
        progresses[#progresses + 1] = progress
        places[#places + 1] = taken
        places[#places + 1] = #progress
      end
      if max > 0 and deliveries - uncounted >= max then
        agenda, soonest = agenda or {}, math.min(soonest or LAST, deadline)
        agenda[#agenda + 1] = text
        agenda[#agenda + 1] = 'e' .. id
      end
      taken = i
    end
    if taken < n then
      break
    end
    call('ZREMRANGEBYRANK', s, 0, n - 1)
    if retried then
      call('ZREM', d, unpack(retried))
    end
    call('HSET', r, unpack(started, 1, 2 * n))
    call('ZADD', l, unpack(entries, 1, 2 * n))
    if agenda then
      call('ZADD', a, unpack(agenda))
    end
    heads = table.concat(runs, '', 1, n)
    set[1], set[2] = memory, pack('>c0I6I4c0', nonce, now, n, heads) -- a repeated call needs the ids
    if budget > 0 then
      set[3], set[4] = 'hb', string.format('%d', used)
    end
    if dropped > 0 then
      call('HINCRBY', m, 'hd', dropped)
    end
  end
  next_at = math.min(next_at, next_due)
  local extra, note = n > 0 and not V[6] and 1 or 0, 0 -- a pull that found nothing is no reason to register a topic
  if wait > 0 then
    if not V[4] or V[4] + 0 < now + wait then
      set[#set + 1] = 'wu'
      set[#set + 1] = string.format('%d', now + wait + 5000)
      extra = V[6] and 0 or 1
    end
    if V[12] ~= me and V[13] and V[13] + 0 > now and n == 0 then
      extra = extra + 2 -- off duty
    else
      local until_at = math.min((next_at <= LAST and next_at or now) + 1000, now + wait + 1000)
      if V[12] ~= me or V[13] + 0 < until_at - 500 then
        set[#set + 1] = 'dp'
        set[#set + 1] = me
        set[#set + 1] = 'du'
        set[#set + 1] = string.format('%d', until_at)
      end
    end
  end
  if #set > 0 then
    call('HSET', m, unpack(set))
  end
  if soonest then
    local hint = (V[5] or 0) + 0
    soonest = math.min(math.ceil(soonest / 10000) * 10000, LAST)
    note = (hint <= now or soonest < hint) and soonest or 0
  end
  local numbers = { next_at <= LAST and next_at or -1, more, 0, 0, 0, (V[9] or 0) + 0, n }
  if places then
    for i = 1, #places do
      numbers[7 + i] = places[i]
    end
    records[n + 1] = table.concat(progresses)
  end
  local packed = cmsgpack.pack(numbers)
  return pack(REPLY, 0, extra, now, note, #packed) .. packed .. heads .. table.concat(records, '', 1, places and n + 1 or n)
until true

-- include tools
-- include reply
-- include write
-- include record
-- include judge
-- include items
-- include ends
-- include merge
-- include rate
-- include history
local heads, records_out, progresses, places_of, deaths, jobs = {}, {}, {}, {}, {}, 0
local version = tonumber(M.pv or 0) -- of the config that this partition has

local function hand_out(job)
  local record = job.flags % 4 == 3 and record_with_items(job) or job.raw
  local place = struct.unpack('>I4', job.token, 9)
  jobs = jobs + 1
  local counts = struct.pack('>BBI4I4BI6', 76, job.reason, job.deliveries, job.uncounted, job.given, job.time)
  heads[jobs] = struct.pack('>c0I4I2I4I4dddc0', counts, job.policy.max, #job.id, #record, place, job.due, job.since or job.due, job.exp, job.id)
  records_out[jobs] = record
  if job.progress then
    put(progresses, job.progress)
    put(places_of, place, #job.progress)
  end
end

local function answer(numbers, note, extra)
  numbers[6], numbers[7] = version, jobs
  for i = 1, #places_of do
    numbers[7 + i] = places_of[i]
  end
  local leased = table.concat(heads) .. table.concat(records_out) .. table.concat(progresses)
  return reply(0, note, extra, cmsgpack.pack(numbers), leased .. table.concat(deaths))
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

if again then
  -- A repeated call: return the jobs that it leased before and that still have this lease.
  local ids, at = {}, 19
  for i = 1, (struct.unpack('>I4', M.memo, 15)) do
    local size = struct.unpack('>I2', M.memo, at + 21)
    ids[i] = string.sub(M.memo, at + 55, at + 54 + size)
    at = at + 55 + size
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
  return answer({ next_at or -1, next_at and next_at <= now and 1 or 0, 0, 0, 0 }, agenda_note(), M.reg and 0 or 1)
end

if wait > 0 then
  open_partition()
elseif not known then
  return answer({ -1, 0, 0, 0, 0 }, 0, 0)
end
local expired, exhausted, over, more = 0, 0, 0, false
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

local credit, left = 5, N[5] or 0
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
      remember_lost(job)
      if job.phase == 'L' then
        over = over + 1
      else
        collect('rs', froms[i])
        if job.deliveries > job.uncounted then
          collect('rd', 'w' .. job.id) -- lib/retries
        end
      end
      job.deliveries, job.time, job.changed = job.deliveries + 1, math.min(start + lease, LAST), start
      job.token = base .. struct.pack('>I4', jobs)
      remember(job, DELIVERED, start, job.deliveries - job.uncounted, nil, who and who[credit])
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
      collect('rd', 'w' .. job.id)
      collect('zd', int(now), 'b' .. job.id)
      count('nB', 1)
    end
  end
end
if (inspected >= bound and not empty) or (flushed and jobs < room) then
  more = true
end

local memo = struct.pack('>I4', jobs) .. table.concat(heads)
if wait > 0 and (not M.wu or tonumber(M.wu) < now + wait) then
  put(set, 'wu', int(now + wait + 5000))
end

local mine = M.dp == me
local off_duty = wait > 0 and not mine and M.du ~= nil and tonumber(M.du) > now and jobs == 0
-- `write_all` comes first; only then do the indexes show the remaining jobs.
full = limited and jobs >= places and places < want
if rate then
  tokens = tokens - jobs
  if jobs > 0 or tonumber(bucket[2]) > now then
    keep_tokens(tokens)
  end
end
if jobs == 0 and wait == 0 then
  M.reg = '1' -- a pull that found nothing is no reason to register a topic
end
local note, extra = write_all('', '', memo)
local next_at = next_time()
if wait > 0 and not off_duty then
  local until_at = math.min((next_at or now) + 1000, now + wait + 1000)
  if not mine or tonumber(M.du) < until_at - 500 then
    redis.call('HSET', m, 'dp', me, 'du', int(until_at))
  end
end
return answer({ next_at or -1, more and 1 or 0, over, expired, exhausted }, note, extra + (off_duty and 2 or 0))
