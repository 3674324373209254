-- head: the beginning of every changing script, after lib/time. Names KEYS and ARGV once, reads the partition's own
-- fields once, and refuses to change anything if the clock jumped.
local m, j, r, s, l, a, d, g, k = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local caller, nonce, blob, channel, permanent = ARGV[3], ARGV[4], ARGV[6], ARGV[7], ARGV[8] == '1'
-- Namespaces with `namespace_ids`: ids are unique over all topics, so a record names its topic. `topic` is this
-- partition's ('' = the caller knows only the id). `other` is the topic of a second partition, whose keys follow the
-- first nine (m s l a d g k).
local topic, other = ARGV[10], ARGV[11]

local function put(list, x, y)
  local n = #list
  list[n + 1] = x
  if y ~= nil then
    list[n + 2] = y
  end
end

local M = {} -- the partition's own fields that this script needs, by name
do
  local fields = { 'c:' .. caller, 'seq', 'pu', 'mif', 'wu', 'ag', 'reg' }
  for i = 1, #FIELDS do
    fields[#fields + 1] = FIELDS[i]
  end
  local values = redis.call('HMGET', m, unpack(fields))
  for i = 1, #fields do
    M[i == 1 and 'memo' or fields[i]] = values[i] or nil
  end
end
-- A repeated call is answered from memory even if the clock differs, because a delayed call must not run a second time.
if stepped and not (M.memo and string.sub(M.memo, 1, 8) == nonce) then
  return { 1, now, 0, 0, '', '' }
end
local waited = M.wu ~= nil and tonumber(M.wu) > now -- a pull waits and needs wake-ups
local limited = M.mif ~= nil and tonumber(M.mif) > 0

local set = {} -- fields of m to write at the end, together with the remembered answer of this call
local known = M.seq ~= nil -- false: the partition is unused, and a refusal must not write to it

local function open_partition()
  if known then
    return
  end
  put(set, 'seq', '0')
  if permanent then
    -- Permanent entries: if a key became empty while its slot is being moved, the next access would fail half-way.
    redis.call('HSETNX', j, '', '') -- it may say that the partition is closed (lib/closed)
    redis.call('HSET', r, '', '')
    redis.call('HSET', g, '', '')
    redis.call('ZADD', k, 0, '') -- score 0: reading by name needs equal scores
    for _, z in ipairs({ s, l, a, d }) do
      redis.call('ZADD', z, '+inf', '')
    end
  end
end

local seq = tonumber(M.seq or 0)
local soonest -- the earliest clean-up work that this call created
local freed, first = false, nil -- a place became free; the earliest time at which a new job is deliverable

local function int(n)
  return string.format('%.0f', n)
end

local HEAD = '>BBI5I6' -- the first fields of a record (lib/record)

-- An entry of the schedule or the leases. Jobs that are due in the same millisecond sort by send order.
local function member(seq_number, id)
  return struct.pack('>I5', seq_number) .. id
end

local function work_at(t)
  if soonest == nil or t < soonest then
    soonest = t
  end
end

local function deliverable_at(t)
  if first == nil or t < first then
    first = t
  end
end
