#!lua flags=allow-oom
-- directory: the data that belongs to no single partition: topics, their configs, clean-up hints.
-- KEYS   topics seen config agenda
-- ARGV   1 now_ms or ""   2 what   3 numbers   4 blob   5 permanent   6 channel of the announcements
--        what      1 register   2 topic   3 topics after a name   4 set config   5 remove   6 idle   7 note   8 take   9 finish
--        numbers   1, 2: sizes of names   3: limit, size of the name after which, size of the namespace prefix   4: expected version (-1 any), size of
--                  the name, size of the config   5: seen, version, size of the name   6: before, limit   7: per hint time, size   8: limit, hold   9: sizes
--        names are namespace \0 topic; a hint's member is time:6 + partition name
-- RETURN now numbers blob
--        topics    per topic: size of the name, seen, version, size of the config; blob: name, config
--        4 and 5 also publish, per change: number of the change, version (0 = removed), name
-- BOUND  100 entries
local topics, seen, config, agenda = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- include clock
local what, N, blob, at = tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3]), ARGV[4], 1
local numbers, pieces = {}, {}

local function take(size)
  local text = string.sub(blob, at, at + size - 1)
  at = at + size
  return text
end

local function show(name)
  local score, stored = redis.call('ZSCORE', seen, name), redis.call('HGET', config, name)
  local n = #numbers
  numbers[n + 1], numbers[n + 2] = #name, score and tonumber(score) or 0
  numbers[n + 3], numbers[n + 4] = stored and struct.unpack('>I6', stored) or 0, stored and #stored - 6 or 0
  pieces[#pieces + 1] = name
  pieces[#pieces + 1] = stored and string.sub(stored, 7) or ''
end

-- Each registration is later than the previous one, even within one millisecond. So a removal notices that the topic
-- was used since.
local function register(name)
  redis.call('ZADD', topics, 0, name)
  redis.call('ZADD', seen, int(math.max(now, tonumber(redis.call('ZSCORE', seen, name) or 0) + 1)), name)
end

-- The highest version of any removed config, stored under the empty name. A topic that is created again continues
-- after it.
local function last_removed()
  local stored = redis.call('HGET', config, '')
  return stored and #stored == 6 and struct.unpack('>I6', stored) or 0
end

-- Counts and announces a change of a topic. The counter is the version of an entry like any other's (engine.directory.CHANGES),
-- so a process that missed the announcement sees that the number has grown.
local CHANGES = 'dueline.internal\0push-targets'
local function announce(name, version)
  local stored = redis.call('HGET', config, CHANGES)
  local number = (stored and struct.unpack('>I6', stored) or 0) + 1
  redis.call('HSET', config, CHANGES, struct.pack('>I6', number))
  if not stored then
    register(CHANGES)
  end
  redis.call('SPUBLISH', ARGV[6], int(number) .. ' ' .. int(version) .. ' ' .. name)
end

if ARGV[5] == '1' and (what == 1 or what == 4 or what == 7) and redis.call('EXISTS', topics) == 0 then
  redis.call('HSET', config, '', '')
  redis.call('ZADD', topics, 0, '') -- score 0: reading by name needs equal scores
  for _, key in ipairs({ seen, agenda }) do
    redis.call('ZADD', key, '+inf', '')
  end
end

if what == 1 then
  for i = 1, #N do
    register(take(N[i]))
  end
elseif what == 2 then
  for i = 1, #N do
    local name = take(N[i])
    if redis.call('ZSCORE', seen, name) then
      show(name)
    end
  end
elseif what == 3 then
  local name, prefix = take(N[2]), take(N[3])
  local from = name ~= '' and '(' .. name or '[' .. prefix
  local to = prefix ~= '' and '(' .. string.sub(prefix, 1, -2) .. '\1' or '+'
  for _, entry in ipairs(redis.call('ZRANGEBYLEX', topics, from, to, 'LIMIT', 0, N[1])) do
    if entry ~= '' then
      show(entry)
    end
  end
elseif what == 4 then
  local name, text = take(N[2]), take(N[3])
  local stored = redis.call('HGET', config, name)
  local version = stored and struct.unpack('>I6', stored) or 0
  if N[1] < 0 or N[1] == version then
    version = (stored and version or last_removed()) + 1
    redis.call('HSET', config, name, struct.pack('>I6', version) .. text)
    register(name)
    show(name)
    announce(name, version)
  end
elseif what == 5 then
  local name = take(N[3])
  local score, stored = redis.call('ZSCORE', seen, name), redis.call('HGET', config, name)
  local version = stored and struct.unpack('>I6', stored) or 0
  if score and tonumber(score) <= N[1] and version == N[2] then
    redis.call('ZREM', topics, name)
    redis.call('ZREM', seen, name)
    if stored then
      redis.call('HDEL', config, name)
      redis.call('HSET', config, '', struct.pack('>I6', math.max(version, last_removed())))
    end
    numbers[1] = 1
    announce(name, 0)
  end
elseif what == 6 then
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', '(' .. int(N[1]), 'LIMIT', 0, N[2])) do
    show(name)
  end
elseif what == 7 then
  for i = 1, #N, 2 do
    redis.call('ZADD', agenda, int(N[i]), take(N[i + 1]))
  end
elseif what == 8 then
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', agenda, '-inf', int(now), 'LIMIT', 0, N[1])) do
    redis.call('ZADD', agenda, int(now + N[2]), member)
    numbers[#numbers + 1] = #member
    pieces[#pieces + 1] = member
  end
  local top = redis.call('ZRANGE', agenda, 0, 0, 'WITHSCORES')
  table.insert(numbers, 1, top[2] and tonumber(top[2]) < 253402300799999 and tonumber(top[2]) or -1)
elseif what == 9 then
  for i = 1, #N do
    redis.call('ZREM', agenda, take(N[i]))
  end
end
return { now, cmsgpack.pack(numbers), table.concat(pieces) }
