-- head: what every changing script begins with, behind lib/time. Names KEYS and ARGV once, reads the partition's own fields once, refuses to
-- act on a clock that jumped.
local m, j, r, s, l, a, d, g, k = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local caller, nonce, blob, channel, permanent = ARGV[3], ARGV[4], ARGV[6], ARGV[7], ARGV[8] == '1'
-- Namespaces with `namespace_ids`: ids are unique over all topics, so a record names its topic. `topic` is this partition's own ('' = none: the caller
-- knows only the id), `other` a second partition whose keys stand behind the first nine (m s l a d g k).
local topic, other = ARGV[10], ARGV[11]

local function put(list, x, y)
  local n = #list
  list[n + 1] = x
  if y ~= nil then
    list[n + 2] = y
  end
end

local M = {} -- the partition's own fields that this script asked for, by name
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
-- A repeat is answered from memory whatever the clock says: a call that waited long must not run a second time.
if stepped and not (M.memo and string.sub(M.memo, 1, 8) == nonce) then
  return { 1, now, 0, 0, '', '' }
end
local waited = M.wu ~= nil and tonumber(M.wu) > now -- somebody waits: wake-ups are wanted
local limited = M.mif ~= nil and tonumber(M.mif) > 0

local set = {} -- fields of m to write at the end, with the memory of this call
local known = M.seq ~= nil -- a partition that nobody used yet is not written to by a refusal

local function open_partition()
  if known then
    return
  end
  put(set, 'seq', '0')
  if permanent then
    -- A key that becomes empty in a slot that is being moved makes the next access fail half-way.
    redis.call('HSET', j, '', '')
    redis.call('HSET', r, '', '')
    redis.call('HSET', g, '', '')
    redis.call('ZADD', k, 0, '') -- read by name, which needs equal scores
    for _, z in ipairs({ s, l, a, d }) do
      redis.call('ZADD', z, '+inf', '')
    end
  end
end

local seq = tonumber(M.seq or 0)
local soonest -- earliest clean-up work this call made
local freed, first = false, nil -- a place became free; the earliest moment something new is deliverable

local function int(n)
  return string.format('%.0f', n)
end

local HEAD = '>BBI5I6' -- what a record begins with (lib/record)

-- An entry of the schedule or of the leases: what is due in the same millisecond stands in send order.
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
