#!lua flags=allow-oom
-- push: the log of attempts and the breaker of a topic's push target, shared by all processes.
-- KEYS   state log
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob
--        numbers  what (1 report, 2 state, 3 attempts, 4 reset), then
--                 1: failures that open the breaker (0 = none), open for ms, then the size of each attempt's entry
--                 3: only numbers below this (0 = from the newest), limit, size of the id (0 = of all jobs)
--        blob     1: the entries (push_log.py)   3: the id
-- RETURN status now 0 0 numbers blob
--        1, 2: failures, open until, size of the last error (-1 = none); blob: that error
--        3: number of the last entry inspected (0 = it was the oldest), then sizes of entries, newest first;
--           blob: the entries
-- BOUND  report: 500 attempts, the newest 2,000 are kept, 100 fields of the state; attempts: 500 entries inspected per
--        call, so 4 calls for all.
--        Both keys expire 30 days after the last report.
local state, log = KEYS[1], KEYS[2]
local caller, nonce, N, blob = ARGV[3], ARGV[4], cmsgpack.unpack(ARGV[5]), ARGV[6]
local KEPT, DAY = 2000, 86400000
local FLAGS, SIZES, TEXTS = 17, 18, 24 -- their positions in an entry
local OK, HAS_ERROR = 1, 2

-- include time
-- include callers
-- include reply
-- include log

if N[1] == 4 then
  redis.call('DEL', state, log)
  return reply(0, 0, 0, cmsgpack.pack({ 0 }), '')
end

local found = redis.call('HMGET', state, 'n', 'f', 'o', 'e', 'x', 'c:' .. caller)
local number, failures, open_until = tonumber(found[1] or 0), tonumber(found[2] or 0), tonumber(found[3] or 0)
local last_error, renewed, memo = found[4], tonumber(found[5] or 0), found[6]

local function target()
  return reply(0, 0, 0, cmsgpack.pack({ failures, open_until, last_error and #last_error or -1 }), last_error or '')
end

if N[1] == 3 then
  return page(number, function(entry)
    return N[4] == 0 or (struct.unpack('>I2', entry, SIZES) == N[4] and string.sub(entry, TEXTS, TEXTS + N[4] - 1) == blob)
  end)
end

if N[1] == 2 or (memo and string.sub(memo, 1, 8) == nonce) then
  return target()
end
if stepped then
  return reply(1, 0, 0, '', '')
end

local limit, open_ms = N[2], N[3]
local entries, at = {}, 1
for i = 4, #N do
  local entry = string.sub(blob, at, at + N[i] - 1)
  at = at + N[i]
  entries[#entries + 1] = entry
  local flags = string.byte(entry, FLAGS)
  if bit.band(flags, OK) > 0 then
    failures, open_until = 0, 0
  else
    local id_size, error_size = struct.unpack('>I2I2', entry, SIZES)
    local text = string.sub(entry, TEXTS + id_size, TEXTS + id_size + error_size - 1)
    failures, last_error = failures + 1, bit.band(flags, HAS_ERROR) > 0 and text
    -- While the breaker is open, calls in flight may still fail. They do not keep it open for longer.
    if limit > 0 and failures >= limit and open_until <= now then
      open_until = start + open_ms
    end
  end
end
if limit == 0 then
  open_until = 0
end
number = number + #entries
redis.call('LPUSH', log, unpack(entries))
redis.call('LTRIM', log, 0, KEPT - 1)
redis.call('HSET', state, 'n', int(number), 'f', int(failures), 'o', int(open_until), 'c:' .. caller, nonce .. struct.pack('>I6', now))
if last_error then
  redis.call('HSET', state, 'e', last_error)
else
  redis.call('HDEL', state, 'e')
end
if math.abs(now - renewed) >= DAY then
  redis.call('PEXPIRE', state, 30 * DAY)
  redis.call('PEXPIRE', log, 30 * DAY)
  redis.call('HSET', state, 'x', int(now))
end
forget_callers(state, 32)
return target()
