-- record: the stored form of a job. `j` is written only by send, edit, replace and revive. Everything that changes
-- during deliveries is in a second, small value `r` (the run), which exists from the first pull, the first edit or the end on.
--
-- j[id]  flags policy seq:5 created:6 crc:4 fingerprint:8 | [policy bytes] [topic] [ttl:6] [edited:6] [headers] [tags] body
--        flags: 0-1 body kind, 4 ttl, 8 headers, 16 tags, 32 edited, 64 policy inline, 128 topic (namespaces with `namespace_ids`)
-- r[id]  phase reason deliveries:4 uncounted:4 given:1 time:6 due:6 exp:6 changed:6 token:12 | [history] [progress] [record head:25, with its policy bytes if inline, its topic with namespace_ids] error
--        reason + 64: a history follows: count of entries:1, size:2, entries (lib/history)
--        reason + 128: a sized progress follows (Release.progress)
--        phase: L leased, W waits, D done, C cancelled, X dead; lower case d, c: tombstone, no record in j, its head is here
-- time   L deadline; W next delivery; ended: end of the retention
local RUN, NO_TOKEN = '>BBI4I4BI6I6I6I6', string.rep('\0', 12)
local PAST_COST = 32 -- of a history, besides its entries: its head, and what the allocator adds
local policies = {}

-- lease, max (0 = none), retain, dead_retain, flags (1 = keep the body), jitter, waits (none = at once)
local function policy(number, inline, home)
  local key = inline or (home == m and number) or home .. number
  local p = policies[key]
  if p == nil then
    local text = inline or redis.call('HGET', home, 'p' .. number)
    local lease, max, retain, dead, flags, jitter, n = struct.unpack('>I4I4I6I6BdB', text)
    p = { lease = lease, max = max, retain = retain, dead = dead, keep = flags % 2 == 1, jitter = jitter, n = n, text = text }
    policies[key] = p
  end
  return p
end

local function wait_of(p, i)
  return (struct.unpack('>I6', p.text, 31 + 6 * (i - 1)))
end

-- Reads a record's head and sections into `job`; the body begins at job.body_at.
local function read_record(job, raw)
  local flags, number, seq_number, created = struct.unpack(HEAD, raw)
  local at, inline = 26, nil
  job.raw, job.flags, job.number, job.seq, job.created = raw, flags, number, seq_number, created
  if flags > 3 then
    if bit.band(flags, 64) > 0 then
      local size = struct.unpack('>I2', raw, at)
      inline = string.sub(raw, at + 2, at + 1 + size)
      at = at + 2 + size
    end
    if bit.band(flags, 128) > 0 then
      local size = struct.unpack('>I2', raw, at)
      job.topic = string.sub(raw, at + 2, at + 1 + size)
      at = at + 2 + size
    end
    job.middle = at -- ttl, edited, headers and tags begin here
    if bit.band(flags, 4) > 0 then
      job.ttl = struct.unpack('>I6', raw, at)
      at = at + 6
    end
    if bit.band(flags, 32) > 0 then
      job.edited = struct.unpack('>I6', raw, at)
      at = at + 6
    end
    if bit.band(flags, 8) > 0 then
      local size = struct.unpack('>I2', raw, at)
      job.headers = string.sub(raw, at, at + 1 + size)
      at = at + 2 + size
    end
    if bit.band(flags, 16) > 0 then
      local size = struct.unpack('>I2', raw, at)
      job.tags = string.sub(raw, at + 2, at + 1 + size)
      at = at + 2 + size
    end
  else
    job.middle = at
  end
  job.body_at, job.inline = at, inline
end

local function read_run(job, raw)
  local phase
  phase, job.reason, job.deliveries, job.uncounted, job.given, job.time, job.due, job.exp, job.changed = struct.unpack(RUN, raw)
  phase = string.char(phase)
  job.phase = phase
  job.token = string.sub(raw, 36, 47)
  local at, reason = 48, job.reason
  if reason > 63 then
    job.reason = reason % 64
    if reason % 128 > 63 then
      job.entries, job.past, at = struct.unpack('>BI2c0', raw, at)
    end
    if reason > 127 then
      job.progress, at = struct.unpack('>I2c0', raw, at)
    end
  end
  if phase == 'd' or phase == 'c' then
    job.head = string.sub(raw, at, at + 24)
    job.flags, job.number, job.seq, job.created = struct.unpack(HEAD, job.head)
    at = at + 25
    if bit.band(job.flags, 64) > 0 then
      local size = struct.unpack('>I2', raw, at)
      job.inline = string.sub(raw, at + 2, at + 1 + size)
      job.head = job.head .. string.sub(raw, at, at + 1 + size)
      at = at + 2 + size
    end
    if bit.band(job.flags, 128) > 0 then
      local size = struct.unpack('>I2', raw, at)
      job.topic = string.sub(raw, at + 2, at + 1 + size)
      job.head = job.head .. string.sub(raw, at, at + 1 + size)
      at = at + 2 + size
    end
  end
  job.error = string.sub(raw, at)
end

local function run_text(job, phase, head)
  local reason, past, progress = job.reason, '', ''
  if job.past then
    reason, past = reason + 64, struct.pack('>BI2', job.entries, #job.past) .. job.past
  end
  if job.progress then
    reason, progress = reason + 128, struct.pack('>I2', #job.progress) .. job.progress
  end
  return struct.pack(RUN, string.byte(phase), reason, job.deliveries, job.uncounted, job.given, job.time, job.due, job.exp, job.changed)
    .. job.token .. past .. progress .. (head or '') .. job.error
end

-- What the history of a job counts in its partition's budget.
local function history_bytes(job)
  return job.past and PAST_COST + #job.past or 0
end

local function each_tag(job, f)
  if job.tags then
    for tag in string.gmatch(job.tags, '[^%z]+') do
      f(tag .. '\0' .. job.id)
    end
  end
end
