#!lua flags=allow-oom
-- audit: the log of who changed what, shared by all processes.
-- KEYS   state log
-- ARGV   1 now_ms or ""   2 (not used)   3 caller   4 nonce   5 numbers   6 blob
--        numbers  what (1 append, 2 page), then
--                 1: entries to keep (0 = as remembered), their number if none is remembered, then the size of each entry
--                 2: only numbers below this (0 = from the newest), limit, since, sizes of the wanted namespace, who and
--                    action (-1 = any)
--        blob     1: the entries without their time (audit_log.py)   2: namespace, who, action
-- RETURN status now 0 0 numbers blob
--        2: number of the last entry inspected (0 = it was the oldest), then sizes of entries, newest first;
--           blob: the entries
-- BOUND  append: 500 entries, 100 fields of the state; page: 500 entries inspected per call.
--        A clock step does not refuse a call: entries have the time that the store says.
local state, log = KEYS[1], KEYS[2]
local caller, nonce, N, blob = ARGV[3], ARGV[4], cmsgpack.unpack(ARGV[5]), ARGV[6]

-- include time
-- include callers
-- include reply
-- include log

local found = redis.call('HMGET', state, 'n', 'k', 'c:' .. caller)
local number, kept, memo = tonumber(found[1] or 0), tonumber(found[2] or 0), found[3]

if N[1] == 2 then
  local at = 1
  local function wanted(size)
    if size < 0 then
      return nil
    end
    at = at + size
    return string.sub(blob, at - size, at - 1)
  end
  local filters = { wanted(N[5]) or false, wanted(N[6]) or false, wanted(N[7]) or false }
  local function matches(entry)
    if struct.unpack('>I6', entry) < N[4] then
      return false
    end
    local from = 13
    for i = 1, 3 do
      local size = struct.unpack('>I2', entry, 5 + 2 * i)
      if filters[i] and filters[i] ~= string.sub(entry, from, from + size - 1) then
        return false
      end
      from = from + size
    end
    return true
  end
  return page(number, matches)
end

local done = reply(0, 0, 0, cmsgpack.pack({ 0 }), '')
if memo and string.sub(memo, 1, 8) == nonce then
  return done
end
if N[2] > 0 then
  kept = N[2]
elseif kept == 0 then
  kept = N[3]
end
local entries, at, time = {}, 1, struct.pack('>I6', now)
for i = 4, #N do
  entries[#entries + 1] = time .. string.sub(blob, at, at + N[i] - 1)
  at = at + N[i]
end
redis.call('LPUSH', log, unpack(entries))
redis.call('LTRIM', log, 0, kept - 1)
redis.call('HSET', state, 'n', int(number + #entries), 'k', int(kept), 'c:' .. caller, nonce .. time)
forget_callers(state, 32)
return done
