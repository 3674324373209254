#!lua flags=allow-oom
-- epochs: which partitions were opened, and the epoch that each has. A partition that is gone, and is not known here,
--         was never opened or was retired; one that is known here was lost.
-- KEYS   meta epochs closed
-- ARGV   1 now_ms or ""   2 what   3 numbers   4 blob   5 permanent   6 ""
--        what      1 open   2 confirm   3 begin to close   4 closed   5 not closed after all
--        numbers   sizes of the texts; 1 also: the highest send number that the caller saw (-1: it knows none)
--        blob      epoch of the store, data version, name of the partition, then
--                  1: epoch that the partition has ("" = none), epoch that the caller knows ("" = none)   2, 4: epoch
--        epochs    name -> epoch, or ? + epoch while the partition is being opened or closed
--                  \1 + name -> the highest send number of a lost partition
--        closed    name \0 epoch -> when it was retired; kept for an hour
-- RETURN now numbers (state) blob (epoch)
--        state     0 the store has another epoch, or lost its data   1 being opened or closed   2 opened
--                  3 neither opened nor retired (blob: when an operator last accepted a loss)
--                  4 the partition belongs to another store
-- BOUND  O(log N), 100 old entries
local meta, epochs, closed = KEYS[1], KEYS[2], KEYS[3]
local KEPT_MS = 3600000
local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
local what, N, texts, at = tonumber(ARGV[2]), cmsgpack.unpack(ARGV[3]), {}, 1
for i = 1, what == 1 and 5 or what == 3 and 3 or 4 do
  texts[i] = string.sub(ARGV[4], at, at + N[i] - 1)
  at = at + N[i]
end
local store, version, name, found, known = texts[1], texts[2], texts[3], texts[4], texts[5]

local function int(n)
  return string.format('%.0f', n)
end

local function answer(state, epoch)
  return { now, cmsgpack.pack({ state }), epoch or '' }
end

local state = redis.call('HMGET', meta, 'epoch', 'lost', 'n')
if not state[1] then
  -- Emptied. Leave a mark, so that a process that starts now notices it as well.
  redis.call('HSET', meta, 'version', version, 'epoch', store, 'lost', int(now))
end
if state[1] ~= store or state[2] then
  return answer(0, state[1])
end
if ARGV[5] == '1' and redis.call('HSETNX', epochs, '', '') == 1 then
  redis.call('ZADD', closed, '+inf', '') -- permanent entries, as in a partition (lib/head)
end

local entry = redis.call('HGET', epochs, name) or ''
local mark, named = string.match(entry, '^([?-]?)(.*)$')
local opened = entry ~= '' and mark == ''

if what == 1 then
  if found ~= '' and string.sub(found, 1, #store + 1) ~= store .. '.' then
    return answer(4)
  elseif opened then
    if found ~= entry and N[6] > tonumber(redis.call('HGET', epochs, '\1' .. name) or -1) then
      redis.call('HSET', epochs, '\1' .. name, int(N[6]))
    end
    return answer(2, entry)
  elseif mark == '?' and (found == '' or found == named) then
    return answer(1, named) -- several processes open it at once, or one died
  elseif entry == '' and found == '' and known ~= '' and not redis.call('ZSCORE', closed, name .. '\0' .. known) then
    return answer(3, redis.call('HGET', meta, 'accepted'))
  end
  -- A new epoch, whose number is higher than any before it, even if the directory has lost some of them.
  local last = math.max(tonumber(state[3] or 0), found ~= '' and tonumber(string.sub(found, #store + 2)) or 0)
  local epoch = store .. '.' .. int(last + 1)
  redis.call('HSET', meta, 'n', int(last + 1))
  redis.call('HSET', epochs, name, '?' .. epoch)
  return answer(1, epoch)
elseif what == 2 then
  if entry == '?' .. found then
    redis.call('HSET', epochs, name, found)
    entry = found
  end
  return answer(entry == found and 2 or 1)
elseif what == 3 then
  if entry ~= '' then
    redis.call('HSET', epochs, name, '-' .. named)
  end
  return answer(opened and 2 or 1, named)
elseif what == 4 then
  if named == found and mark ~= '?' then
    redis.call('HDEL', epochs, name)
  end
  redis.call('ZADD', closed, int(now), name .. '\0' .. found)
  local old = redis.call('ZRANGEBYSCORE', closed, '-inf', int(now - KEPT_MS), 'LIMIT', 0, 100)
  if #old > 0 then
    redis.call('ZREM', closed, unpack(old))
  end
  return answer(1)
elseif what == 5 then
  if entry == '-' .. found then
    redis.call('HSET', epochs, name, found)
  end
  return answer(1)
end
