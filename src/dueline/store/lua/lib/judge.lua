-- judge: the one place that derives a state (engine/lifecycle.py does the same in Python). Clean-up only records
-- what this already derives, so what a caller sees never depends on whether clean-up has run.
-- job.state: s scheduled, r ready, l leased, D done, C cancelled, X dead, nil nothing (never was, or gone by retention).
-- E elsewhere (namespaces with `namespace_ids`: the id is used in another topic, job.topic).
-- job.at: when it reached this state. job.written: the end is recorded in the store, not only derived from the time.
local EXHAUSTED, EXPIRED, REJECTED, CORRUPT = 1, 2, 3, 4

local function judge(job)
  local phase = job.phase
  if phase == 'L' then
    job.at = job.time
    if job.time > now then
      job.state = 'l'
    elseif job.policy.max > 0 and job.deliveries - job.uncounted >= job.policy.max then
      job.state, job.reason = 'X', EXHAUSTED
    elseif job.exp > 0 and job.exp <= now then
      job.state, job.reason, job.at = 'X', EXPIRED, math.max(job.exp, job.time)
    else
      job.state = 'r'
    end
  elseif phase == 'W' then
    if job.exp > 0 and job.exp <= now then
      job.state, job.reason, job.at = 'X', EXPIRED, job.exp
    else
      job.state, job.at = job.time > now and 's' or 'r', job.time
    end
  else
    job.at, job.written = job.changed, true
    job.state = string.upper(phase)
    if job.time <= now then
      job.state, job.gone = nil, true
    end
  end
  if job.state == 'X' and not job.written and job.at + job.policy.dead <= now then
    job.state, job.gone = nil, true -- it died and its retention ended before clean-up ran
  end
end

-- Leased, and its ttl has passed: it is not delivered again, and only its holder can still ack it.
local function is_overdue(job)
  return job.state == 'l' and job.exp > 0 and job.exp <= now
end

-- The partition whose policies and schedule a job belongs to: this one or the second one. Nil: neither.
local function home_of(job)
  if job.topic == nil or job.topic == topic then
    return m, s
  elseif job.topic == other then
    return KEYS[10], KEYS[11]
  end
end

local function read_whole(job, raw)
  read_record(job, raw)
  job.home, job.schedule = home_of(job)
  if job.home then
    job.policy = policy(job.number, job.inline, job.home)
  end
end

-- A job that was neither pulled nor edited has no run; its state follows from its entry in the schedule.
local function started(job, score)
  if score then
    score = tonumber(score)
    job.phase, job.reason, job.deliveries, job.uncounted, job.given = 'W', 0, 0, 0, 0
    job.time, job.due, job.exp, job.fresh = score, score, job.ttl and score + job.ttl or 0, true
    job.changed, job.token, job.error = job.edited or job.created, NO_TOKEN, ''
    judge(job)
  end
end

-- The jobs of `ids` in their current state; an unknown one has state nil and no record.
local function load(ids)
  local jobs, n, unstarted, members = {}, #ids, {}, {}
  for from = 1, n, 3900 do
    local to = math.min(from + 3899, n)
    local records = redis.call('HMGET', j, unpack(ids, from, to))
    local runs = redis.call('HMGET', r, unpack(ids, from, to))
    for i = from, to do
      local job = { id = ids[i] }
      local record, run = records[i - from + 1], runs[i - from + 1]
      jobs[i] = job
      if record and not pcall(read_whole, job, record) then
        job.raw, job.unreadable, record = nil, true, false -- nothing was written yet: this affects only the job itself
      end
      if run and not job.unreadable then
        read_run(job, run)
        if job.head then
          job.home = home_of(job)
          job.policy = job.home and policy(job.number, job.inline, job.home)
        end
        if job.policy then
          judge(job)
        elseif record or job.head then
          job.state = 'E'
        end
      elseif record then
        if job.home == m then
          unstarted[#unstarted + 1] = job
          members[#members + 1] = member(job.seq, job.id)
        elseif job.home then
          started(job, redis.call('ZSCORE', job.schedule, member(job.seq, job.id)))
        else
          job.state = 'E'
        end
      end
    end
  end
  for from = 1, #members, 3900 do
    local to = math.min(from + 3899, #members)
    local scores = redis.call('ZMSCORE', s, unpack(members, from, to))
    for i = from, to do
      started(unstarted[i], scores[i - from + 1])
    end
  end
  return jobs
end
