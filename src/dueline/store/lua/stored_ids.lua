#!lua flags=no-writes
-- stored_ids: the ids of all jobs that a partition holds, in any state and of all topics, unless there are too many.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 ""   3 ""   4 ""   5 numbers   6 ""
--        numbers  limit
-- RETURN status now 0 0 numbers blob
--        numbers  whether these are all (0: more than the limit, none is named), then the sizes of the ids   blob: the ids
-- BOUND  2,000 ids
local FIELDS = {}
-- include time
-- include head
-- include tools
-- include reply
local limit, numbers, ids = cmsgpack.unpack(ARGV[5])[1], { 1 }, {}
if redis.call('HLEN', j) + redis.call('HLEN', r) > limit then
  return reply(0, 0, 0, cmsgpack.pack({ 0 }), '')
end
local named = { [''] = true } -- the permanent entry is not an id
for _, key in ipairs({ j, r }) do
  for _, id in ipairs(redis.call('HKEYS', key)) do
    if not named[id] then
      named[id] = true
      put(numbers, #id)
      put(ids, id)
    end
  end
end
return reply(0, 0, 0, cmsgpack.pack(numbers), table.concat(ids))
