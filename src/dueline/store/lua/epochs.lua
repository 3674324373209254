#!lua flags=allow-oom
-- epochs: which partitions were opened, and the epoch that each has. A partition that is gone, and is not known here,
--         was never opened or was retired; one that is known here was lost.
-- KEYS   meta epochs closed topics seen
-- ARGV   1 now_ms or ""   2 what   3 numbers   4 blob   5 permanent   6 ""
--        what      1 open   2 confirm   3 begin to close   4 closed   5 not closed after all
--        numbers   sizes of the epoch of the store and of the data version, then per partition the sizes of its texts;
--                  1 also: the highest send number that the caller saw (-1: it knows none)
--                  2 also: whether open found the topic listed (0/1); then confirm registers it, because the partition
--                  has a note that it is (control.lua), and a removal may have come in between
--        blob      epoch of the store, data version, then per partition its name, and
--                  1: epoch that it has ("" = none), epoch that the caller knows ("" = none)   2, 4, 5: epoch
--        epochs    name -> epoch, or ? + epoch while the partition is being opened or closed
--                  \1 + name -> the highest send number of a lost partition
--        closed    name \0 epoch -> when it was retired; kept for an hour
-- RETURN now numbers (per partition: state, size of its epoch, 1: whether the directory has its topic) blob (epochs)
--        state     0 the store has another epoch, or lost its data   1 being opened or closed   2 opened
--                  3 neither opened nor retired (epoch: when an operator last accepted a loss)
--                  4 the partition belongs to another store
-- BOUND  O(n log N), n <= 100 partitions, 100 old entries
local meta, epochs, closed, topics, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local KEPT_MS = 3600000
-- include clock
local what, N, blob, at = tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3]), ARGV[4], 1
local numbers, pieces = {}, {}

local function take(size)
  local text = string.sub(blob, at, at + size - 1)
  at = at + size
  return text
end
local store, version = take(N[1]), take(N[2])

local function topic_of(name)
  return string.match(name, '^[^%z]*%z[^%z]*')
end

local function answer(state, epoch, listed)
  local n = #numbers
  numbers[n + 1], numbers[n + 2], numbers[n + 3] = state, #(epoch or ''), listed and 1 or 0
  pieces[#pieces + 1] = epoch or ''
end

local state = redis.call('HMGET', meta, 'epoch', 'lost', 'n')
if not state[1] then
  -- Emptied. Leave a mark, so that a process that starts now notices it as well.
  redis.call('HSET', meta, 'version', version, 'epoch', store, 'lost', int(now))
end
local width = ({ 4, 3, 1, 2, 2 })[what] -- numbers per partition
if state[1] ~= store or state[2] then
  for _ = 3, #N, width do
    answer(0)
  end
  return { now, cmsgpack.pack(numbers), '' }
end
if ARGV[5] == '1' and redis.call('HSETNX', epochs, '', '') == 1 then
  redis.call('ZADD', closed, '+inf', '') -- permanent entries, as in a partition (lib/head)
end

local count = tonumber(state[3] or 0)

local function open(name, found, known, highest)
  local entry = redis.call('HGET', epochs, name) or ''
  local mark, named = string.match(entry, '^([?-]?)(.*)$')
  if found ~= '' and string.sub(found, 1, #store + 1) ~= store .. '.' then
    return answer(4)
  elseif entry ~= '' and mark == '' then
    if found ~= entry and highest > tonumber(redis.call('HGET', epochs, '\1' .. name) or -1) then
      redis.call('HSET', epochs, '\1' .. name, int(highest))
    end
    return answer(2, entry)
  elseif mark == '?' and (found == '' or found == named) then
    return answer(1, named, redis.call('ZSCORE', seen, topic_of(name))) -- several processes open it at once, or one died
  elseif entry == '' and found == '' and known ~= '' and not redis.call('ZSCORE', closed, name .. '\0' .. known) then
    return answer(3, redis.call('HGET', meta, 'accepted') or '')
  end
  -- A new epoch, whose number is higher than any before it, even if the directory has lost some of them.
  count = math.max(count, found ~= '' and tonumber(string.sub(found, #store + 2)) or 0) + 1
  local epoch = store .. '.' .. int(count)
  redis.call('HSET', epochs, name, '?' .. epoch)
  answer(1, epoch, redis.call('ZSCORE', seen, topic_of(name)))
end

local function confirm(name, found, listed)
  local entry = redis.call('HGET', epochs, name)
  if entry == '?' .. found then
    redis.call('HSET', epochs, name, found)
  elseif entry ~= found then
    return answer(1)
  end
  if listed == 1 then -- as in directory.lua
    local topic = topic_of(name)
    redis.call('ZADD', topics, 0, topic)
    redis.call('ZADD', seen, int(math.max(now, tonumber(redis.call('ZSCORE', seen, topic) or 0) + 1)), topic)
  end
  answer(2)
end

local function close(name, found)
  local entry = redis.call('HGET', epochs, name) or ''
  local mark, named = string.match(entry, '^([?-]?)(.*)$')
  if what == 3 then
    if entry ~= '' then
      redis.call('HSET', epochs, name, '-' .. named)
    end
    return answer(entry ~= '' and mark == '' and 2 or 1, named)
  elseif what == 4 then
    if named == found and mark ~= '?' then
      redis.call('HDEL', epochs, name)
    end
    redis.call('ZADD', closed, int(now), name .. '\0' .. found)
  elseif entry == '-' .. found then
    redis.call('HSET', epochs, name, found)
  end
  answer(1)
end

local before = count
for i = 3, #N, width do
  local name = take(N[i])
  if what == 1 then
    local found = take(N[i + 1])
    open(name, found, take(N[i + 2]), N[i + 3])
  elseif what == 2 then
    confirm(name, take(N[i + 1]), N[i + 2])
  else
    close(name, what ~= 3 and take(N[i + 1]) or '')
  end
end
if count > before then
  redis.call('HSET', meta, 'n', int(count))
end
if what == 4 then
  local old = redis.call('ZRANGEBYSCORE', closed, '-inf', int(now - KEPT_MS), 'LIMIT', 0, 100)
  if #old > 0 then
    redis.call('ZREM', closed, unpack(old))
  end
end
return { now, cmsgpack.pack(numbers), table.concat(pieces) }
