-- merge: moves the items of a failed group to the open group of its key (engine/store.py, Merge).
local flushed = false -- this call made a group due

-- The id as callers write it; the inverse of codec.pack_id.
local function id_text(id)
  local kind = string.byte(id)
  local function hex(text)
    return (string.gsub(text, '.', function(c)
      return string.format('%02x', string.byte(c))
    end))
  end
  if #id == 16 then
    return hex(id)
  elseif kind == 1 then
    local h = hex(string.sub(id, 2))
    return table.concat({ string.sub(h, 1, 8), string.sub(h, 9, 12), string.sub(h, 13, 16), string.sub(h, 17, 20), string.sub(h, 21) }, '-')
  end
  return string.sub(id, kind < 4 and kind or 1)
end

-- Sets a new due time; the send number stays. Only for groups that were never pulled.
local function move(group, due)
  group.due, group.time = due, due
  collect('zs', int(due), member(group.seq, group.id))
  if group.ttl then
    group.exp = math.min(due + group.ttl, LAST)
    collect('za', int(group.exp), 'x' .. group.id)
    work_at(group.exp)
  end
  deliverable_at(due)
  judge(group)
end

local function keep_meta(group)
  redis.call('HSET', g, 'm' .. group.id, struct.pack('>I2I4I6', group.count, group.bytes, start))
  count('g', 0) -- the call has changed something
end

-- Closes a full group, and makes it due unless it keeps its due time.
local function flush(group)
  group.closed = true
  if redis.call('HGET', g, 'k' .. group.key) == group.id then
    redis.call('HDEL', g, 'k' .. group.key)
  end
  if group.due > now and not group.waits then
    flushed = true
    move(group, now)
  end
end

local function flush_if_full(group)
  if group.count >= group.max_items then
    flush(group)
  end
end

-- The open group of a key. A group that has expired is not open, even if clean-up has not recorded it yet.
local function open_of(key)
  local id = redis.call('HGET', g, 'k' .. key)
  local group = id and load({ id })[1]
  if group and group.fresh and (group.state == 's' or group.state == 'r') then
    read_group(group)
    read_meta(group, g)
    return group
  end
end

-- Moves all items of a failed group to an open one, which then has the items of both in send order. The failed one ends
-- as cancelled, and its error names the other. False: the items do not fit or cannot be read; neither group changes.
local function give(job, into)
  local fields, from = items_of(job, g)
  if job.count + into.count > into.max_items or job.bytes + into.bytes > into.max_bytes or job.torn then
    return false
  end
  local _, there = items_of(into, g)
  if into.torn then
    return false
  end
  local prefix, sets, a_at, b_at = 'i' .. struct.pack(SIZED, #into.key, into.key), {}, 1, 1
  for place = 1, job.count + into.count do
    local value
    if b_at > into.count or (a_at <= job.count and struct.unpack('>I5', from[a_at]) < struct.unpack('>I5', there[b_at])) then
      value, a_at = from[a_at], a_at + 1
      if item_id(value) ~= '' then
        put(sets, prefix .. item_id(value), into.id)
      end
    else
      value, b_at = there[b_at], b_at + 1
    end
    put(sets, 'n' .. struct.pack('>I2', place) .. into.id, value)
  end
  grouped('HSET', g, sets)
  redis.call('HDEL', g, unpack(fields))
  into.count, into.bytes = into.count + job.count, into.bytes + job.bytes
  keep_meta(into)
  job.count, job.bytes = 0, 0
  keep_meta(job)
  job.error, job.token = 'its items went to group ' .. id_text(into.id), NO_TOKEN
  close(job, 'C', true)
  return true
end

-- The open group that received the items of a failed one; nil if the failed one keeps its items.
local function give_to_open(job)
  local into = open_of(read_group(job))
  if into and give(job, into) then
    flush_if_full(into)
    return into
  end
end
