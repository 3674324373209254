-- closed: whether the partition takes no new ids (engine/expansion.py). The mark of a topic is a field of m. With
-- `namespace_ids` all topics share the ids, so they share the mark: the empty field of j, which is not an id, holds the
-- version of the namespace's map.
local closed = M.xc and tonumber(M.pv or 0)
if topic and not closed then
  closed = tonumber(redis.call('HGET', j, ''))
end
