#!lua flags=allow-oom
-- workers: the workers of a namespace, as they report themselves. Safe to run twice.
-- KEYS   records seen
--        records   hash: name -> seen:6 stopped:1 data; '' on a Cluster
--        seen      zset: name by the time of its last beat
-- ARGV   1 now_ms or ""   2 what   3 numbers   4 blob   5 permanent   6 ""
--        what      1 beat   2 leave   3 page   4 get
--        numbers   1: forgotten after ms, most workers, size of the name; blob: name, data   2: -; blob: name
--                  3: forgotten after ms, start, limit   4: forgotten after ms; blob: name
-- RETURN now numbers blob
--        1, 2: 1 = done, 0 = too many, or no such worker   3, 4: start of the next page (-1 = none), per worker: size
--        of the name, seen at, stopped, size of the data; blob: name, data
-- BOUND  200 workers; each beat removes at most 100
local records, seen = KEYS[1], KEYS[2]
-- include clock
local what, N, blob = tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3]), ARGV[4]
local numbers, pieces = {}, {}

if what == 1 then
  if ARGV[5] == '1' and redis.call('HEXISTS', records, '') == 0 then
    redis.call('HSET', records, '', '')
    redis.call('ZADD', seen, '+inf', '')
  end
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', int(now - N[1]), 'LIMIT', 0, 100)) do
    redis.call('ZREM', seen, name)
    redis.call('HDEL', records, name)
  end
  local name = string.sub(blob, 1, N[3])
  numbers[1] = 0
  if redis.call('HEXISTS', records, name) == 1 or redis.call('HLEN', records) < N[2] + (ARGV[5] == '1' and 1 or 0) then
    redis.call('HSET', records, name, struct.pack('>I6B', now, 0) .. string.sub(blob, N[3] + 1))
    redis.call('ZADD', seen, int(now), name)
    numbers[1] = 1
  end
elseif what == 2 then
  local stored = blob ~= '' and redis.call('HGET', records, blob)
  numbers[1] = stored and 1 or 0
  if stored then
    redis.call('HSET', records, blob, string.sub(stored, 1, 6) .. struct.pack('>B', 1) .. string.sub(stored, 8))
  end
else
  local names, most = {}, 1
  numbers[1] = -1
  if what == 3 then
    names = redis.call('ZRANGEBYSCORE', seen, '(' .. int(now - N[1]), int(now), 'LIMIT', N[2], N[3] + 1)
    most = N[3]
    numbers[1] = #names > most and N[2] + most or -1
  elseif blob ~= '' and tonumber(redis.call('ZSCORE', seen, blob) or 0) > now - N[1] then
    names = { blob }
  end
  for i = 1, math.min(#names, most) do
    local stored = redis.call('HGET', records, names[i])
    if stored then
      local n = #numbers
      numbers[n + 1], numbers[n + 2] = #names[i], struct.unpack('>I6', stored)
      numbers[n + 3], numbers[n + 4] = string.byte(stored, 7), #stored - 7
      pieces[#pieces + 1] = names[i] .. string.sub(stored, 8)
    end
  end
end
return { now, cmsgpack.pack(numbers), table.concat(pieces) }
