#!lua flags=no-writes
-- groups: one page of the open merge groups of a partition, by the size of their key, then by key.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 ""   3 ""   4 ""   5 numbers   6 cursor (an entry of k)   10 topic
--        numbers  limit
-- RETURN status now 0 0 numbers blob
--        numbers  size of the cursor, then per group: sizes of its id and key, count of items, max items, bytes, due, created, changed
--        blob     cursor, then per group: id, key
-- BOUND  500 entries of k inspected; the items of a group are not read
local FIELDS = {}
-- include time
-- include head
-- include record
-- include judge
-- include items
local limit, last = cmsgpack.unpack(ARGV[5])[1], blob
local numbers, pieces, found, inspected, place = {}, {}, 0, 0, nil

while not place do
  local list = redis.call('ZRANGEBYLEX', k, last ~= '' and '(' .. last or '[\1', '(\2', 'LIMIT', 0, 100)
  local fields, ids, at = {}, {}, {}
  for i = 1, #list do
    fields[i] = 'k' .. struct.unpack(SIZED, list[i], 2)
  end
  local open = #list > 0 and redis.call('HMGET', g, unpack(fields)) or {}
  for i = 1, #list do
    local id = string.sub(list[i], #fields[i] + 8)
    if open[i] == id then
      put(ids, id)
      put(at, i)
    end
  end
  for n, job in ipairs(load(ids)) do
    if job.state == 's' or job.state == 'r' then
      local key = read_group(job)
      read_meta(job, g)
      put(numbers, #job.id, #key)
      put(numbers, job.count, job.max_items)
      put(numbers, job.bytes, job.due)
      put(numbers, job.created, math.max(job.changed, job.appended))
      put(pieces, job.id, key)
      found = found + 1
    end
    if found >= limit then
      place = list[at[n]]
      break
    end
  end
  inspected = inspected + #list
  if not place then
    last = list[#list]
    place = #list < 100 and '' or inspected >= 500 and last or nil
  end
end
table.insert(numbers, 1, #place)
return { 0, now, 0, 0, cmsgpack.pack(numbers), place .. table.concat(pieces) }
