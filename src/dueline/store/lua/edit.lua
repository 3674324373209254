#!lua
-- edit: reschedule, fire or change a scheduled or ready job. Its new version is the next send number.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  per job: id size, token size (0), version (0 = any), when kind (0 none, 1 delay, 2 at), when, ttl (-1 leave, 0 none),
--                 body kind (-1 leave), crc, body size, headers size (-1 leave), tags size (-1 leave), policy size (0 leave);
--                 at the end the budget of histories (lib/history)
--        blob     all ids, then per job: body, headers, tags, policy
-- RETURN status now note extra numbers (per job: code, due, version)   blob
-- BOUND  O(n log N), n <= 500
local FIELDS = { 'pn', 'ep', 'hb' }
-- include time
-- include head
-- include tools
-- include reply
-- include write
-- include record
-- include judge
-- include items
-- include ends
-- include retries
-- include codes
-- include refs
if again then
  return earlier_reply()
end
-- include lost
local WIDTH = 12
local ids, _, N, at = refs(WIDTH)
local budget = N[#N]
-- include history
if not known and not topic then
  return none_found(#ids, 3)
end
local jobs, results = load(ids), {}

local function take(size)
  local text = string.sub(blob, at, at + size - 1)
  at = at + size
  return text
end

local function sized(text)
  return text and #text > 0 and struct.pack('>I2', #text) .. text or ''
end

for i, job in ipairs(jobs) do
  local o = (i - 1) * WIDTH
  local version, kind, when, ttl, body_kind, crc = N[o + 3], N[o + 4], N[o + 5], N[o + 6], N[o + 7], N[o + 8]
  local body = take(N[o + 9])
  local headers = N[o + 10] >= 0 and take(N[o + 10]) or nil
  local tags = N[o + 11] >= 0 and take(N[o + 11]) or nil
  local text = N[o + 12] > 0 and take(N[o + 12]) or nil
  local state, code, due = job.state, OK, 0
  if state == nil then
    code = NOT_FOUND
  elseif state == 'E' then
    code = ELSEWHERE
  elseif state == 'l' then
    code = JOB_LEASED
  elseif state ~= 's' and state ~= 'r' then
    code = ALREADY_DONE
  elseif version > 0 and version ~= job.seq then
    code = VERSION_MISMATCH
  else
    leave(job)
    local time = job.at
    due = job.due
    if kind > 0 then
      if kind == 1 then
        due = when == 0 and now or math.min(start + when, LAST)
      else
        due = math.min(math.max(when, now), LAST)
      end
      time = due
    end
    if ttl >= 0 then
      job.ttl = ttl > 0 and ttl or nil
    end
    local expires = job.exp
    if kind > 0 or ttl >= 0 then
      expires = job.ttl and math.min(due + job.ttl, LAST) or 0
    end
    seq = seq + 1
    if tags ~= nil then
      each_tag(job, function(entry)
        collect('rk', entry)
      end)
      job.tags = tags
      each_tag(job, function(entry)
        collect('zk', 0, entry)
      end)
    end
    if headers == nil then
      headers = job.headers and string.sub(job.headers, 3)
    end
    if job.flags % 4 == 3 then
      body_kind = -1 -- a group has items instead of a body
    end
    local number, inline = job.number, job.inline
    if text then
      number, inline = 0, text
    end
    remember_lost(job)
    if not job.fresh or job.flags % 4 < 3 then -- an open group has no run
      remember(job, EDITED, start, 0, due)
    end
    job.fresh = job.fresh and not job.past
    if job.fresh then
      job.edited = start
    end
    local flags = (body_kind >= 0 and body_kind or job.flags % 4) + (job.ttl and 4 or 0) + (headers and #headers > 0 and 8 or 0)
      + (job.tags and #job.tags > 0 and 16 or 0) + (job.edited and 32 or 0) + (inline and 64 or 0) + (job.topic and 128 or 0)
    local sum = body_kind >= 0 and struct.pack('>I4', crc) or string.sub(job.raw, 14, 17)
    collect('hj', job.id, struct.pack(HEAD, flags, number, seq, job.created) .. sum .. string.sub(job.raw, 18, 25)
      .. sized(inline) .. sized(job.topic) .. (job.ttl and struct.pack('>I6', job.ttl) or '')
      .. (job.edited and struct.pack('>I6', job.edited) or '') .. sized(headers) .. sized(job.tags)
      .. (body_kind >= 0 and body or string.sub(job.raw, job.body_at)))
    collect('zs', int(time), member(seq, job.id))
    if not job.fresh then
      job.time, job.due, job.exp, job.changed, job.token = time, due, expires, start, NO_TOKEN
      collect('hr', job.id, run_text(job, 'W'))
      if job.deliveries > job.uncounted then
        collect('zd', int(RETRIES + time), 'w' .. job.id)
      end
    end
    if expires > 0 then
      collect('za', int(expires), 'x' .. job.id)
      work_at(expires)
    end
    deliverable_at(time)
  end
  results[3 * i - 2], results[3 * i - 1], results[3 * i] = code, due, code == OK and seq or job.seq or 0
end
return finish(results, '')
