-- ends: the ways in which a job ends. Each function collects writes (lib/write) for a job returned by `load`.
local COUNTER = { 'x1', 'x2', 'x3', 'x4' }

-- Updates g and k when a group ends. `phase` X, D, C keep its items; d, c keep only the item ids, which cannot be sent
-- again while the tombstone is readable; nil: nothing is kept.
local function end_group(job, phase)
  local home, ids = job.home == m and g or KEYS[15], {}
  if job.head then
    local text, at, id = redis.call('HGET', home, 'm' .. job.id) or '\0\0', 1, nil
    job.key, at = struct.unpack(SIZED, text, at)
    while at <= #text do
      id, at = struct.unpack(SIZED, text, at)
      put(ids, id)
    end
  else
    if redis.call('HGET', home, 'k' .. read_group(job)) == job.id then
      redis.call('HDEL', home, 'k' .. job.key)
    end
    collect('rk', group_entry(job))
    if phase and string.upper(phase) == phase then
      return
    end
    local fields, values = items_of(job, home)
    for i = 1, job.count do
      if item_id(values[i]) ~= '' then
        put(ids, item_id(values[i]))
      end
    end
    if job.count > 0 then
      redis.call('HDEL', home, unpack(fields))
    end
  end
  local key = struct.pack(SIZED, #job.key, job.key)
  if phase then
    for i, id in ipairs(ids) do
      ids[i] = struct.pack(SIZED, #id, id)
    end
    redis.call('HSET', home, 'm' .. job.id, key .. table.concat(ids))
    return
  end
  local gone = { 'm' .. job.id }
  for i, id in ipairs(ids) do
    ids[i] = 'i' .. key .. id
  end
  for i, holder in ipairs(#ids > 0 and redis.call('HMGET', home, unpack(ids)) or {}) do
    if holder == job.id then -- not if the item was sent again after this group was gone
      put(gone, ids[i])
    end
  end
  redis.call('HDEL', home, unpack(gone))
end

-- Removes a live job from schedule or leases, and its entries from the agenda.
local function leave(job)
  if job.phase == 'L' then
    collect('rl', member(job.seq, job.id))
    if job.policy.max > 0 and job.deliveries - job.uncounted >= job.policy.max then
      collect('ra', 'e' .. job.id)
    end
    if job.time > now then
      freed = true
    end
  else
    collect('rs', member(job.seq, job.id))
    if job.deliveries > job.uncounted then
      collect('rd', 'w' .. job.id) -- lib/retries
    end
  end
  if job.exp > 0 then
    collect('ra', 'x' .. job.id)
  end
end

local function drop_run(job)
  collect('dr', job.id)
  count('hb', -history_bytes(job))
end

-- Deletes an ended or gone job: record, run, index entries, tags.
local function forget(job)
  if job.written then
    collect('ra', 't' .. job.id)
    if job.phase == 'X' then
      collect('rd', 'x' .. job.id)
      count(COUNTER[job.reason], -1)
    else
      count(string.upper(job.phase) == 'D' and 'nD' or 'nC', -1)
    end
  else
    leave(job)
  end
  each_tag(job, function(entry)
    collect('rk', entry)
  end)
  if job.flags % 4 == 3 then
    end_group(job)
  end
  drop_run(job)
  if job.raw then
    collect('dj', job.id)
  end
end

-- Live -> dead at `at` for `reason`; the body stays, so that it can be revived.
local function bury(job, reason, at)
  leave(job)
  job.reason, job.changed, job.time = reason, at, math.min(at + job.policy.dead, LAST)
  if job.policy.dead == 0 or job.time <= now then
    each_tag(job, function(entry)
      collect('rk', entry)
    end)
    if job.flags % 4 == 3 then
      end_group(job)
    end
    drop_run(job)
    collect('dj', job.id)
    return
  end
  if job.flags % 4 == 3 then
    end_group(job, 'X')
  end
  collect('hr', job.id, run_text(job, 'X'))
  collect('zd', int(at), 'x' .. job.id)
  collect('za', int(job.time), 't' .. job.id)
  count(COUNTER[reason], 1)
  work_at(job.time)
end

-- Live -> done (D) or cancelled (C): leaves a tombstone for the retention, or nothing. `bare`: the body is never kept.
local function close(job, phase, bare)
  leave(job)
  local retain, keep = job.policy.retain, job.policy.keep and job.raw and not bare
  if job.flags % 4 == 3 then
    end_group(job, retain > 0 and (keep and phase or string.lower(phase)) or nil)
  end
  each_tag(job, function(entry)
    collect('rk', entry)
  end)
  if retain == 0 then
    if not job.fresh then
      drop_run(job)
    end
    collect('dj', job.id)
    return
  end
  job.reason, job.changed, job.time = 0, start, math.min(start + retain, LAST)
  if keep then
    collect('hr', job.id, run_text(job, phase))
  else
    local head = string.sub(job.raw, 1, 25)
    if job.inline then
      head = head .. struct.pack('>I2', #job.inline) .. job.inline
    end
    if job.topic then
      head = head .. struct.pack('>I2', #job.topic) .. job.topic
    end
    collect('hr', job.id, run_text(job, string.lower(phase), head))
    collect('dj', job.id)
  end
  collect('za', int(job.time), 't' .. job.id)
  count(phase == 'D' and 'nD' or 'nC', 1)
  work_at(job.time)
end
