#!lua flags=allow-oom
-- events: what the processes did, as a capped stream, and who records and listens. Safe to run twice.
-- KEYS   stream state members
--        stream    stream: k kind, m member, n number, d data
--        state     hash: until (somebody listens), last, trimmed (positions), bytes of the data in the stream;
--                  n: + member -> its last number; s: + member -> how often it was silent
--        members   zset: member by the time when it was last heard
-- ARGV   1 now_ms or ""   2 what   3 numbers   4 blob   5 permanent   6 channel of the announcements
--        what      1 join   2 leave   3 listen   4 append   5 close   6 read
--        numbers   1: most members; blob: member   2: -; blob: member   3: interest in ms, renewed below ms
--                  4: first number, opened (0/1), lost (0/1), silent after ms, silences, most entries, most bytes, size
--                  of the member, sizes of the entries; blob: member, entries   5: -; blob: member
--                  6: limit; blob: position
-- RETURN now numbers blob
--        1, 4, 5: until when to record (0 = nobody listens)   2: -   3, 6: size of last, size of trimmed, per entry: kind,
--        number, size of its id, member and data; blob: last, trimmed, the entries
-- BOUND  16 entries; each call removes at most 1,000 entries (close: all 10,000); 10 silent members; listen: 1,000 members
local stream, state, members = KEYS[1], KEYS[2], KEYS[3]
-- include clock
local what, N, blob, channel = tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3]), ARGV[4], ARGV[6]
local NEW, LOST = '1', '2'
local numbers, pieces, added = {}, {}, false

local head = redis.call('HMGET', state, 'until', 'last', 'trimmed', 'bytes')
local listened, last, trimmed, bytes = tonumber(head[1] or 0), head[2] or '0-0', head[3] or '0-0', tonumber(head[4] or 0)

if ARGV[5] == '1' and not head[2] and what ~= 6 then
  redis.call('ZADD', members, '+inf', '')
  redis.call('HSET', state, 'last', last)
end

-- A test may pass its own time, so the time of an id is given, but never goes back.
local function add(kind, member, number, data)
  local ms, seq = string.match(last, '^(%d+)-(%d+)$')
  local id = int(now) .. '-0'
  if tonumber(ms) >= now then
    id = ms .. '-' .. int(tonumber(seq) + 1)
  end
  last = redis.call('XADD', stream, id, 'k', kind, 'm', member, 'n', number, 'd', data)
  bytes, added = bytes + #data + 64, true
end

local function field(entry, name)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == name then
      return entry[2][i + 1]
    end
  end
  return ''
end

-- Removes the oldest entries while there are too many. If some remain, the next call removes them. A full stream loses
-- about as much as an append adds, so it is read in small steps: an entry may have 64 KiB.
local function trim(most, most_bytes)
  local over, gone = redis.call('XLEN', stream) - most, 0
  while gone < 1000 and (over > gone or bytes > most_bytes) do
    local oldest = redis.call('XRANGE', stream, gone == 0 and '-' or '(' .. trimmed, '+', 'COUNT', 4)
    if #oldest == 0 then
      break
    end
    for _, entry in ipairs(oldest) do
      if over <= gone and bytes <= most_bytes then
        break
      end
      gone, trimmed, bytes = gone + 1, entry[1], bytes - #field(entry, 'd') - 64
    end
  end
  if gone > 0 then
    redis.call('XTRIM', stream, 'MAXLEN', redis.call('XLEN', stream) - gone)
  end
end

local function keep()
  redis.call('HSET', state, 'last', last, 'trimmed', trimmed, 'bytes', int(bytes))
end

local function positions()
  numbers[1], numbers[2] = #last, #trimmed
  pieces[1], pieces[2] = last, trimmed
end

if what == 1 then
  if redis.call('ZSCORE', members, blob) or redis.call('ZCARD', members) < N[1] then
    redis.call('ZADD', members, int(now), blob)
  end
  numbers[1] = listened > now and listened or 0
elseif what == 2 then
  if blob ~= '' then
    redis.call('ZREM', members, blob)
    redis.call('HDEL', state, 'n:' .. blob, 's:' .. blob)
  end
elseif what == 3 then
  if listened <= now then
    for _, member in ipairs(redis.call('ZRANGE', members, 0, 999)) do
      if member ~= '' then
        redis.call('ZADD', members, int(now), member)
      end
    end
    add(NEW, '', '0', '')
    keep()
    redis.call('HSET', state, 'until', int(now + N[1]))
    redis.call('SPUBLISH', channel, '')
  elseif listened - now < N[2] then
    redis.call('HSET', state, 'until', int(now + N[1]))
  end
  positions()
elseif what == 4 then
  local member, at = string.sub(blob, 1, N[8]), N[8] + 1
  local stored = tonumber(redis.call('HGET', state, 'n:' .. member) or 0)
  if N[2] == 1 then
    add(NEW, member, '0', '')
  end
  local number = N[1] - 1
  for i = 9, #N do
    number = number + 1
    if number > stored then
      add('0', member, int(number), string.sub(blob, at, at + N[i] - 1))
    end
    at = at + N[i]
  end
  if number > stored then
    redis.call('HSET', state, 'n:' .. member, int(number))
  end
  if N[3] == 1 then
    add(LOST, member, '0', '')
  end
  redis.call('ZADD', members, int(now), member)
  redis.call('HDEL', state, 's:' .. member)
  if listened > now then
    for _, silent in ipairs(redis.call('ZRANGEBYSCORE', members, '-inf', int(now - N[4]), 'LIMIT', 0, 10)) do
      add(LOST, silent, '0', '')
      if redis.call('HINCRBY', state, 's:' .. silent, 1) >= N[5] then
        redis.call('ZREM', members, silent)
        redis.call('HDEL', state, 'n:' .. silent, 's:' .. silent)
      else
        redis.call('ZADD', members, int(now), silent)
      end
    end
  end
  if added then
    trim(N[6], N[7])
    keep()
    redis.call('SPUBLISH', channel, '')
  end
  numbers[1] = listened > now and listened or 0
elseif what == 5 then
  numbers[1] = listened > now and listened or 0
  if numbers[1] == 0 and redis.call('XLEN', stream) > 0 then
    redis.call('XTRIM', stream, 'MAXLEN', 0)
    trimmed, bytes = last, 0
    keep()
  end
elseif what == 6 then
  positions()
  for _, entry in ipairs(redis.call('XRANGE', stream, '(' .. blob, '+', 'COUNT', N[1])) do
    local member, data, n = field(entry, 'm'), field(entry, 'd'), #numbers
    numbers[n + 1], numbers[n + 2] = tonumber(field(entry, 'k')), tonumber(field(entry, 'n'))
    numbers[n + 3], numbers[n + 4], numbers[n + 5] = #entry[1], #member, #data
    pieces[#pieces + 1] = entry[1] .. member .. data
  end
end
return { now, cmsgpack.pack(numbers), table.concat(pieces) }
