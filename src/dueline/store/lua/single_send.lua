#!lua
-- single_send: store one new job under a free id, on a partition that knows its policy and has the data that the caller
--       knows (lib/epoch). This is the usual send; any other case changes nothing here and is left to `send`.
-- KEYS   m j r s
-- ARGV   1 now_ms or ""   2 expected:tolerance:epoch:highest   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 namespace_ids (1) or ""
--        numbers  policy_version (a double) policy size:2 id size:2 flags:1 when (a double: delay, or -at);
--                 cheaper here than msgpack
--        blob     policy, id, rest (crc, fingerprint, sections, body)
-- RETURN status now 0 extra answer (state:1 due:8 version:8; empty: left to `send`; state 0: code MOVED, see send.lua)   ""
-- BOUND  O(log N)
local m, j, r, s = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- include time
local version, id_at, rest_at, flags, when = struct.unpack('>dI2I2Bd', ARGV[5])
local blob, mine = ARGV[6], 'c:' .. ARGV[3]
id_at = id_at + 1
rest_at = id_at + rest_at
local V = redis.call('HMGET', m, mine, 'seq', 'wu', 'reg', 'pv', 'q' .. string.sub(blob, 1, id_at - 1), 'ep', 'xc')
if V[1] and string.sub(V[1], 1, 8) == ARGV[4] then
  return { 0, now, 0, V[4] and 0 or 1, string.sub(V[1], 15), '' }
end
if stepped then
  return { 1, now, 0, 0, '', '' }
end
local id = string.sub(blob, id_at, rest_at - 1)
local other = V[5] and tonumber(V[5]) > version or not V[5] and version > 0 -- the partition has another policy
if not V[2] or not V[6] or other or V[7] ~= epoch or tonumber(V[2]) < tonumber(highest) or redis.call('HEXISTS', r, id) == 1 then
  return { 0, now, 0, 0, '', '' }
end
local closed = V[8] and tonumber(V[5] or 0) -- as in lib/closed
if ARGV[8] == '1' and not closed then
  closed = tonumber(redis.call('HGET', j, ''))
end
if closed then -- a job that has the id is left to `send`
  local held = redis.call('HEXISTS', j, id) == 1
  return { 0, now, 0, 0, held and '' or struct.pack('>BI8I8', 0, 0, closed), '' }
end
local seq, due = V[2] + 1, now
if when > 0 then
  due = math.min(start + when, LAST)
elseif when < 0 then
  due = math.min(math.max(-when, now), LAST)
end
local record = struct.pack('>BBI5I6', flags, tonumber(V[6]), seq, start) .. string.sub(blob, rest_at)
if redis.call('HSETNX', j, id, record) == 0 then
  return { 0, now, 0, 0, '', '' }
end
local wake = false -- a waiter must be woken, because this job is due before all others
if V[3] and tonumber(V[3]) > now then
  local top = redis.call('ZRANGE', s, 0, 0, 'WITHSCORES')
  wake = not top[2] or due < tonumber(top[2])
end
redis.call('ZADD', s, string.format('%.0f', due), struct.pack('>I5', seq) .. id)
local answer = struct.pack('>BI8I8', due <= now and 2 or 1, due, seq)
redis.call('HSET', m, 'seq', string.format('%.0f', seq), mine, ARGV[4] .. struct.pack('>I6', now) .. answer)
if wake then
  redis.call('SPUBLISH', ARGV[7], '')
end
return { 0, now, 0, V[4] and 0 or 1, answer, '' }
