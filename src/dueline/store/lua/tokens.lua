#!lua flags=allow-oom
-- tokens: the access tokens, and the servers that check them. Safe to run twice: a repeated put finds its own data.
-- KEYS   records changes ends confirmed seen
--        records    hash: id -> generation:6 remove_at:6 data; '' -> the newest generation:6
--        changes    zset: id by generation          ends   zset: id by the time of its removal
--        confirmed  zset: server by generation      seen   zset: server by the time when it was last seen
-- ARGV   1 now_ms or ""   2 what   3 numbers   4 blob   5 permanent   6 channel of the announcements
--        what      1 put   2 get   3 changed   4 beat   5 behind   6 leave
--        numbers   1: expected generation, remove at (0 = never), the most tokens, size of the id; blob: id, data
--                  2: -; blob: id   3: after, limit   4: generation, renew seen after ms, gone after ms; blob: server
--                  5: generation, limit   6: below (-1 = any); blob: server
-- RETURN now numbers blob
--        1: generation (0 = another one than expected, -1 = too many tokens); publishes the generation
--        2, 3: newest generation, where the next page begins (-1 = none), per token: size of the id, generation,
--        remove at, size of the data; blob: id, data   4: newest generation   5: sizes; blob: servers   6: -
-- BOUND  200 tokens, 100 servers; each call removes at most 100 tokens and 10 servers
local records, changes, ends, confirmed, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- include clock
local what, N, blob = tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3]), ARGV[4]
local numbers, pieces = {}, {}

local counter = redis.call('HGET', records, '')
local newest = counter and struct.unpack('>I6', counter) or 0

local function show(id, stored)
  local n = #numbers
  numbers[n + 1], numbers[n + 2] = #id, struct.unpack('>I6', stored)
  numbers[n + 3], numbers[n + 4] = struct.unpack('>I6', stored, 7), #stored - 12
  pieces[#pieces + 1] = id
  pieces[#pieces + 1] = string.sub(stored, 13)
end

-- A token whose time has passed is gone, whether or not it was removed.
local function find(id)
  local stored = redis.call('HGET', records, id)
  local remove_at = stored and struct.unpack('>I6', stored, 7) or 0
  if stored and (remove_at == 0 or remove_at > now) then
    return stored
  end
  return nil
end

if ARGV[5] == '1' and (what == 1 or what == 4) and not counter then
  redis.call('HSET', records, '', struct.pack('>I6', 0))
  for _, key in ipairs({ changes, ends, confirmed, seen }) do
    redis.call('ZADD', key, '+inf', '')
  end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', int(now), 'LIMIT', 0, 100)) do
  redis.call('HDEL', records, id)
  redis.call('ZREM', changes, id)
  redis.call('ZREM', ends, id)
end

if what == 1 then
  local expected, remove_at, id = N[1], N[2], string.sub(blob, 1, N[4])
  local data = string.sub(blob, N[4] + 1)
  local stored = find(id)
  local generation = stored and struct.unpack('>I6', stored) or 0
  if generation ~= expected then
    numbers[1] = generation > expected and string.sub(stored, 13) == data and generation or 0
  elseif not stored and redis.call('HLEN', records) - (redis.call('HEXISTS', records, '')) >= N[3] then
    numbers[1] = -1
  else
    newest = newest + 1
    redis.call('HSET', records, id, struct.pack('>I6I6', newest, remove_at) .. data, '', struct.pack('>I6', newest))
    redis.call('ZADD', changes, int(newest), id)
    if remove_at > 0 then
      redis.call('ZADD', ends, int(remove_at), id)
    else
      redis.call('ZREM', ends, id)
    end
    redis.call('SPUBLISH', ARGV[6], int(newest))
    numbers[1] = newest
  end
elseif what == 2 then
  numbers = { newest, -1 }
  local stored = blob ~= '' and find(blob)
  if stored then
    show(blob, stored)
  end
elseif what == 3 then
  numbers = { newest, -1 }
  -- Up to the newest: a permanent entry is above it.
  local found = redis.call('ZRANGEBYSCORE', changes, '(' .. int(N[1]), int(newest), 'LIMIT', 0, N[2] + 1)
  for i = 1, math.min(#found, N[2]) do
    local stored = find(found[i])
    if stored then
      show(found[i], stored)
    end
    if i == N[2] and #found > i then
      numbers[2] = tonumber(redis.call('ZSCORE', changes, found[i]))
    end
  end
elseif what == 4 then
  local before, at = redis.call('ZSCORE', confirmed, blob), redis.call('ZSCORE', seen, blob)
  -- Most beats find nothing to write, so they cost no fsync.
  if not before or tonumber(before) ~= N[1] then
    redis.call('ZADD', confirmed, int(N[1]), blob)
  end
  if not at or tonumber(at) <= now - N[2] then
    redis.call('ZADD', seen, int(now), blob)
  end
  for _, server in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', '(' .. int(now - N[3]), 'LIMIT', 0, 10)) do
    redis.call('ZREM', seen, server)
    redis.call('ZREM', confirmed, server)
  end
  numbers[1] = newest
elseif what == 5 then
  for _, server in ipairs(redis.call('ZRANGEBYSCORE', confirmed, '-inf', '(' .. int(N[1]), 'LIMIT', 0, N[2])) do
    numbers[#numbers + 1] = #server
    pieces[#pieces + 1] = server
  end
elseif what == 6 then
  local before = redis.call('ZSCORE', confirmed, blob)
  if blob ~= '' and (N[1] < 0 or (before and tonumber(before) < N[1])) then
    redis.call('ZREM', confirmed, blob)
    redis.call('ZREM', seen, blob)
  end
end
return { now, cmsgpack.pack(numbers), table.concat(pieces) }
