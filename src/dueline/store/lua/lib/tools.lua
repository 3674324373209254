-- tools: what a script on a partition needs beyond its usual case, after lib/head.
local M = { memo = V[1] or nil, seq = V[2] or nil, mif = V[3] or nil, wu = V[4] or nil, ag = V[5] or nil, reg = V[6] or nil }
for i = 1, #FIELDS do
  M[FIELDS[i]] = V[6 + i] or nil
end

local function put(list, x, y)
  local n = #list
  list[n + 1] = x
  if y ~= nil then
    list[n + 2] = y
  end
end

local waited = M.wu ~= nil and tonumber(M.wu) > now -- a pull waits and needs wake-ups
local limited = M.mif ~= nil and tonumber(M.mif) > 0
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
  return string.format('%d', n)
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
