-- ends: how a job leaves the line. Each collects writes (lib/write) for a job that `load` gave.
local COUNTER = { 'x1', 'x2', 'x3', 'x4' }

-- Takes a live job out of schedule or leases, and its notes out of the agenda.
local function leave(job)
  if job.phase == 'L' then
    put(out.rl, member(job.seq, job.id))
    if job.policy.max > 0 and job.deliveries - job.uncounted >= job.policy.max then
      put(out.ra, 'e' .. job.id)
    end
    if job.time > now then
      freed = true
    end
  else
    put(out.rs, member(job.seq, job.id))
  end
  if job.exp > 0 then
    put(out.ra, 'x' .. job.id)
  end
end

-- Forgets an ended or gone job: record, run, indexes, tags.
local function forget(job)
  if job.written then
    put(out.ra, 't' .. job.id)
    if job.phase == 'X' then
      put(out.rd, 'x' .. job.id)
      count(COUNTER[job.reason], -1)
    else
      count(string.upper(job.phase) == 'D' and 'nD' or 'nC', -1)
    end
  else
    leave(job)
  end
  each_tag(job, function(entry)
    put(out.rk, entry)
  end)
  put(out.dr, job.id)
  if job.raw then
    put(out.dj, job.id)
  end
end

-- Live -> dead at `at` for `reason`; the body stays, so that it can be revived.
local function bury(job, reason, at)
  leave(job)
  job.reason, job.changed, job.time = reason, at, math.min(at + job.policy.dead, LAST)
  if job.time <= now then
    each_tag(job, function(entry)
      put(out.rk, entry)
    end)
    put(out.dr, job.id)
    put(out.dj, job.id)
    return
  end
  put(out.hr, job.id, run_text(job, 'X'))
  put(out.zd, int(at), 'x' .. job.id)
  put(out.za, int(job.time), 't' .. job.id)
  count(COUNTER[reason], 1)
  work_at(job.time)
end

-- Live -> done (D) or cancelled (C): a tombstone for the retention, or nothing at all.
local function close(job, phase)
  leave(job)
  local retain = job.policy.retain
  each_tag(job, function(entry)
    put(out.rk, entry)
  end)
  if retain == 0 then
    if not job.fresh then
      put(out.dr, job.id)
    end
    put(out.dj, job.id)
    return
  end
  job.reason, job.changed, job.time = 0, start, math.min(start + retain, LAST)
  if job.policy.keep and job.raw then
    put(out.hr, job.id, run_text(job, phase))
  else
    local head = string.sub(job.raw, 1, 25)
    if job.inline then
      head = head .. struct.pack('>I2', #job.inline) .. job.inline
    end
    if job.topic then
      head = head .. struct.pack('>I2', #job.topic) .. job.topic
    end
    put(out.hr, job.id, run_text(job, string.lower(phase), head))
    put(out.dj, job.id)
  end
  put(out.za, int(job.time), 't' .. job.id)
  count(phase == 'D' and 'nD' or 'nC', 1)
  work_at(job.time)
end
