-- items: the stored form of a merge group. Its record is like that of any job, with body kind 3; its items are in g.
--
-- j[id]  ... body = opened:5 cap:6 max items:2 max bytes:4 sized key     (crc of the key; written when it is opened, and never again)
--        max items + 32768: a full group keeps its due time
-- g      'k' key          -> id of the open group
--        'm' id           -> count:2 bytes:4 changed:6     (a tombstone: sized key, then the sized ids of the items that it had)
--        'n' place:2 id   -> number:5 crc:4 kind:1 sized item id, body     (places from 1; numbers are send numbers of the partition)
--        'i' sized key, item id -> id of the group that has this item, or had it and is still readable
-- k      '\1' sized key opened:5 id     every live group (a tag cannot begin with a control character)
-- Writes to g are made at once, so that later steps of the same call see them.
local SIZED = '>I2c0'

local function read_group(job)
  if not job.key then
    job.opened, job.cap, job.max_items, job.max_bytes, job.key = struct.unpack('>I5I6I2I4I2c0', job.raw, job.body_at)
    job.waits, job.max_items = job.max_items >= 32768, job.max_items % 32768
  end
  return job.key
end

local function group_entry(job)
  return '\1' .. struct.pack(SIZED, #job.key, job.key) .. struct.pack('>I5', job.opened) .. job.id
end

-- Sets job.count, job.bytes and job.appended to their current values.
local function read_meta(job, home)
  local meta = redis.call('HGET', home, 'm' .. job.id)
  if meta and #meta == 12 then
    job.count, job.bytes, job.appended = struct.unpack('>I2I4I6', meta)
  else
    job.count, job.bytes, job.appended = 0, 0, 0
  end
end

-- The field names of a group's items in g, and their values; job.torn: one of them cannot be read.
local function items_of(job, home)
  local fields, values = {}, {}
  read_meta(job, home)
  for i = 1, job.count do
    fields[i] = 'n' .. struct.pack('>I2', i) .. job.id
  end
  if job.count > 0 then
    values = redis.call('HMGET', home, unpack(fields))
  end
  job.torn = job.count == 0
  for i = 1, job.count do
    local value = values[i]
    if not value or #value < 12 or #value < 12 + struct.unpack('>I2', value, 11) then
      job.torn = true
    end
  end
  return fields, values
end

local function item_id(value)
  return value and #value >= 12 and #value >= 12 + struct.unpack('>I2', value, 11) and (struct.unpack(SIZED, value, 11)) or ''
end

-- A record as delivered. A group's record is followed by its items, each with its size; a missing item has size 0.
local function record_with_items(job)
  local _, values = items_of(job, g)
  local text = { job.raw, struct.pack('>I2', job.count) }
  for i = 1, job.count do
    local value = values[i] or ''
    put(text, struct.pack('>I4', #value), value)
  end
  return table.concat(text)
end
