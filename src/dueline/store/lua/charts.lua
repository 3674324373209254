#!lua flags=allow-oom
-- charts: a ring of the last 1,440 minutes per namespace, and of the last 8 of its topics, shared by all processes.
-- KEYS   state ring names
-- ARGV   1 now_ms or ""   2 (not used)   3 caller   4 nonce   5 numbers   6 blob
--        numbers  what (1 add, 2 pending, 3 read, 4 read topics), then
--                 1: number of namespaces, whether the caller can count pending jobs, number of counts, number of topics of a namespace and minute,
--                    then per row: size of the namespace, size of the topic + 1 (0: the namespace itself), minute, counts
--                 2: size of the namespace, minute, pending jobs, the minute from which they may be counted again
--                 3: size of the namespace, first minute, number of minutes (at most 240)
--                 4: size of the namespace, first minute, number of minutes (at most 8)
--        blob     the namespaces and topics
-- RETURN status now 0 0 numbers blob
--        1: per row 1 if the caller should count the pending jobs now   3: the minute of the first row ever (-1), then
--           the sizes of the rows; blob: the rows, each a msgpack array of minute, pending (-1), counts. Some may be of an earlier day
--           4: as 3, -1 also for a namespace without a place; a row is of one minute: an array of the minute, the number of topics and a map of topic ("": others) to counts
-- BOUND  add: 500 rows of namespaces and 1,000 of topics, 1,448 fields of one namespace removed; read: 240 fields.
--        A clock step does not refuse a call: rows outside the last day, as the store says, are ignored.
local state, ring, names = KEYS[1], KEYS[2], KEYS[3]
local caller, nonce, N, blob = ARGV[3], ARGV[4], cmsgpack.unpack(ARGV[5]), ARGV[6]
local MINUTES, SLOTS = 1440, 8

local function int(n)
  return string.format('%.0f', n)
end

-- include time
-- include callers
-- include reply

local minute_now, at = math.floor(now / 60000), 1
local function take(size)
  local text = string.sub(blob, at, at + size - 1)
  at = at + size
  return text
end

local function field(name, minute)
  return name .. '\0' .. int(minute % MINUTES)
end

local function topics_field(name, minute)
  return name .. '\0t' .. int(minute % SLOTS)
end

local function kept(name, minute)
  local raw = redis.call('HGET', ring, field(name, minute))
  local row = raw and cmsgpack.unpack(raw)
  return row and row[1] == minute and row
end

local function write(name, row)
  redis.call('HSET', ring, field(name, row[1]), cmsgpack.pack(row))
end

if N[1] >= 3 then
  local name, fields, most, place, begun = take(N[2]), {}, 240, field, redis.call('HGET', state, 'b')
  if N[1] == 4 then
    most, place, begun = SLOTS, topics_field, redis.call('ZSCORE', names, name) and begun
  end
  for minute = N[3], N[3] + math.min(N[4], most) - 1 do
    fields[#fields + 1] = place(name, minute)
  end
  local sizes, rows = { tonumber(begun or -1) }, {}
  for _, row in ipairs(redis.call('HMGET', ring, unpack(fields))) do
    if row then
      sizes[#sizes + 1] = #row
      rows[#rows + 1] = row
    end
  end
  return reply(0, 0, 0, cmsgpack.pack(sizes), table.concat(rows))
end

local memo = redis.call('HGET', state, 'c:' .. caller)
if memo and string.sub(memo, 1, 8) == nonce then
  return reply(0, 0, 0, string.sub(memo, 15), '')
end

-- Whether the namespace has a place; a new one takes that of a namespace that recorded nothing for a day.
local function has_place(name)
  if redis.call('ZSCORE', names, name) then
    return true
  elseif redis.call('ZCARD', names) < N[2] then
    return true
  end
  local old = redis.call('ZRANGEBYSCORE', names, '-inf', '(' .. int(minute_now - MINUTES), 'LIMIT', 0, 1)[1]
  if old == nil then
    return false
  end
  local fields = {}
  for minute = 0, MINUTES - 1 do
    fields[#fields + 1] = field(old, minute)
  end
  for minute = 0, SLOTS - 1 do
    fields[#fields + 1] = topics_field(old, minute)
  end
  redis.call('HDEL', ring, unpack(fields))
  redis.call('HDEL', state, 'p:' .. old)
  redis.call('ZREM', names, old)
  return true
end

-- The topics of a minute, read once and written once in a call.
local changed = {}
local function add_topic(name, topic, minute, from, counts)
  local place = topics_field(name, minute)
  local rows = changed[place]
  if not rows then
    local raw = redis.call('HGET', ring, place)
    rows = raw and cmsgpack.unpack(raw)
    changed[place] = rows
  end
  if not rows or rows[1] ~= minute then
    rows = { minute, 0, {} }
    changed[place] = rows
  end
  if not rows[3][topic] and rows[2] >= N[5] then
    topic = ''
  end
  local row = rows[3][topic]
  if not row then
    row = {}
    rows[2], rows[3][topic] = rows[2] + 1, row
  end
  for j = 1, counts do
    row[j] = (row[j] or 0) + N[from + j]
  end
end

local result = {}
if N[1] == 1 then
  local counts, i = N[4], 6
  while i <= #N do
    local name, topic, minute, asked = take(N[i]), N[i + 1] > 0 and take(N[i + 1] - 1), N[i + 2], 0
    if topic then
      if minute > minute_now - SLOTS and minute <= minute_now + 1 and redis.call('ZSCORE', names, name) then
        add_topic(name, topic, minute, i + 2, counts)
      end
    elseif minute > minute_now - MINUTES and minute <= minute_now + 1 and has_place(name) then
      local row, any = kept(name, minute) or { minute, -1 }, false
      for j = 1, counts do
        row[2 + j] = (row[2 + j] or 0) + N[i + 2 + j]
        any = any or N[i + 2 + j] > 0
      end
      redis.call('ZADD', names, 'GT', int(minute), name)
      if any then
        write(name, row)
      end
      if N[3] == 1 and tonumber(redis.call('HGET', state, 'p:' .. name) or 0) <= minute_now then
        redis.call('HSET', state, 'p:' .. name, int(minute_now + 1))
        asked = 1
      end
    end
    result[#result + 1] = asked
    i = i + 3 + counts
  end
  for place, rows in pairs(changed) do
    redis.call('HSET', ring, place, cmsgpack.pack(rows))
  end
  redis.call('HSETNX', state, 'b', int(N[8]))
elseif N[1] == 2 then
  local name = take(N[2])
  if redis.call('ZSCORE', names, name) and N[3] > minute_now - MINUTES then
    local row = kept(name, N[3]) or { N[3], -1 }
    row[2] = N[4]
    write(name, row)
    redis.call('HSET', state, 'p:' .. name, int(N[5]))
  end
end
local packed = cmsgpack.pack(result)
redis.call('HSET', state, 'c:' .. caller, nonce .. struct.pack('>I6', now) .. packed)
forget_callers(state, 128)
return reply(0, 0, 0, packed, '')
