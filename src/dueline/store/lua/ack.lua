#!lua flags=allow-oom
-- ack: complete a job. With a token: the holder of its lease; without one: from any live state.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  per run of jobs that are alike: how many, id size, token size (0 or 12)
--        blob     per job: id, token
-- RETURN status now note extra numbers (per job: code; none: all are acked)   blob           (lib/reply)
-- BOUND  O(n log N), n <= 500
local FIELDS = { 'nD', 'p1', 'hb' }
-- include time
-- include head
local N, at, n = cmsgpack.unpack(ARGV[5]), 1, 0
for o = 1, #N, 3 do
  n = n + N[o]
end
local ids, tokens, last = { unpack(N, 1, n) }, { unpack(N, 1, n) }, 0 -- sized at once
for o = 1, #N, 3 do
  local first, id_size, token_size = last + 1, N[o + 1], N[o + 2]
  last = last + N[o]
  for i = first, last do
    local middle = at + id_size
    ids[i], tokens[i] = sub(blob, at, middle - 1), sub(blob, middle, middle + token_size - 1)
    at = middle + token_size
  end
end

-- The usual case: running leases, with these tokens if any are given, of jobs without tags, progress or a policy of their own,
-- which all leave a tombstone, all keep their body or all leave nothing, on a partition without an in-flight limit.
-- `break`: another case, and nothing was written.
repeat
  if again or not V[2] or (V[3] and V[3] + 0 > 0) then
    break
  end
  local records, runs = call('HMGET', j, unpack(ids)), call('HMGET', r, unpack(ids))
  local ended, agenda, done, kept, bodies, soonest, gone, dropped = { unpack(ids, 1, 2 * n) }, { unpack(ids, 1, 2 * n) }, 0, 0, 0, LAST, nil, 0
  local started = pack('>I6', start)
  local policy, max, ends, text, until_at, keep = -1, nil, nil, nil, nil, false -- of the last job; the next one often has the same
  for i = 1, n do
    local id, record, run, token = ids[i], records[i], runs[i], tokens[i]
    if not record or not run or #record < 25 or (token ~= '' and sub(run, 36, 47) ~= token) then
      break
    end
    local flags, number = string.byte(record, 1, 2)
    local phase, reason, deliveries, uncounted, _, time, _, exp = read('>BBI4I4BI6I6I6', run)
    if phase ~= 76 or reason > 127 or time <= now or flags % 4 == 3 or flags % 32 > 15 or flags % 128 > 63 then
      break
    end
    local head, rest = 25, 48
    if reason > 63 then -- its history
      rest = 51 + read('>I2', run, 49)
    end
    if flags > 127 then -- the record names its topic
      head = 27 + #(topic or '')
      if sub(record, 26, head) ~= pack('>I2', head - 27) .. (topic or '') then
        break
      end
    end
    if number ~= policy then
      local stored = number == 1 and V[8] or call('HGET', m, 'p' .. number)
      if not stored or #stored < 30 then
        break
      end
      local _, retain, bits
      _, max, retain, _, bits = read('>I4I4I6I6B', stored)
      policy, keep = number, bits % 2 == 1 and retain > 0
      ends = retain > 0 and math.min(start + retain, LAST)
      if ends then
        text, until_at = string.format('%d', ends), pack('>I6', ends)
      end
    end
    if ends then
      kept = kept + 1
      ended[2 * i - 1] = id
      -- The run with another phase, time and time of change, and in a tombstone with the record's head (lib/record).
      local counts, times, token_and_history = sub(run, 2, 11), sub(run, 18, 29), sub(run, 36, rest - 1)
      ended[2 * i] = (keep and 'D' or 'd') .. counts .. until_at .. times .. started .. token_and_history .. (keep and '' or sub(record, 1, head)) .. sub(run, rest)
      agenda[2 * i - 1], agenda[2 * i] = text, 't' .. id
      if keep then
        bodies = bodies + 1
      end
      if ends < soonest then
        soonest = ends
      end
    elseif reason > 63 then
      dropped = dropped + rest - 19 -- as lib/record counts it
    end
    if exp > 0 or (max > 0 and deliveries - uncounted >= max) then
      gone = gone or {}
      gone[#gone + 1] = 'e' .. id
      gone[#gone + 1] = 'x' .. id
    end
    records[i] = sub(record, 3, 7) .. id -- its lease
    done = i
  end
  if done < n or (kept > 0 and kept < n) or (bodies > 0 and bodies < n) then
    break
  end
  if bodies == 0 then
    call('HDEL', j, unpack(ids))
  end
  call('ZREM', l, unpack(records))
  if gone then
    call('ZREM', a, unpack(gone))
  end
  local note, memo = 0, pack('>c0I6I4c0', nonce, now, 1, '\144') -- no numbers
  if kept > 0 then
    call('HSET', r, unpack(ended))
    call('ZADD', a, unpack(agenda))
    call('HSET', m, 'nD', string.format('%d', (V[7] or 0) + n), memory, memo)
    local hint = (V[5] or 0) + 0
    soonest = math.min(math.ceil(soonest / 10000) * 10000, LAST)
    note = (hint <= now or soonest < hint) and soonest or 0
  else
    call('HDEL', r, unpack(ids))
    if dropped > 0 then
      call('HSET', m, 'hb', string.format('%d', V[9] - dropped), memory, memo)
    else
      call('HSET', m, memory, memo)
    end
  end
  return pack(REPLY, 0, V[6] and 0 or 1, now, note, 1) .. '\144'
until true

-- include tools
-- include reply
-- include write
-- include record
-- include judge
-- include items
-- include ends
-- include codes
-- include refs
if again then
  return earlier_reply()
end
if not known and not topic then
  return none_found(#ids, 1)
end
local jobs, results = load(ids), {}
for i, job in ipairs(jobs) do
  local token, state, code = tokens[i], job.state, nil
  if state == nil then
    code = NOT_FOUND
  elseif state == 'E' then
    code = ELSEWHERE
  elseif state == 'D' then
    code = token == '' and ALREADY_DONE or (token == job.token and OK or LEASE_LOST)
  elseif state == 'X' or state == 'C' then
    code = token == '' and ALREADY_DONE or LEASE_LOST
  elseif token ~= '' and (job.phase ~= 'L' or token ~= job.token) then
    code = LEASE_LOST
  else
    code = OK
    close(job, 'D')
  end
  results[i] = code
end
return finish(results, '')
