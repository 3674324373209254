#!lua flags=no-writes
-- read: jobs by id, with their current state.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 ""   3 ""   4 ""   5 numbers   6 blob   10 topic (namespaces with `namespace_ids`)
--        numbers  with body (0/1; 2: the history of one job), then the sizes of the ids
--        blob     the ids
-- RETURN status now 0 0 numbers blob                (lib/show; an unknown id has the number 0,
--        an id that is used in another topic has 7 and the size of the topic's name; with the history, last: when the
--        job was last edited before its first entry or 0, size of the entries (lib/history), behind the rest of blob)
-- BOUND  n <= 500
local FIELDS = {}
-- include time
-- include head
local N, ids, at = cmsgpack.unpack(ARGV[5]), {}, 1
for i = 2, #N do
  ids[i - 1] = sub(blob, at, at + N[i] - 1)
  at = at + N[i]
end

-- The usual case: the topics of jobs that have not ended and have no policy of their own. `break`: another case.
repeat
  if topic ~= '' or N[1] ~= 0 then
    break
  end
  local records, results, names = call('HMGET', j, unpack(ids)), { unpack(N) }, { unpack(ids) }
  local named = 0
  for i = 1, #ids do
    local record = records[i]
    local flags = record and #record > 26 and string.byte(record)
    if not flags or flags < 128 or flags % 128 > 63 then
      break
    end
    local name = sub(record, 28, 27 + read('>I2', record, 26))
    results[2 * i - 1], results[2 * i], names[i], named = 7, #name, name, i
  end
  if named < #ids then
    break
  end
  local packed = cmsgpack.pack(results)
  return pack(REPLY, 0, 0, now, 0, #packed) .. packed .. table.concat(names)
until true

-- include tools
-- include reply
-- include record
-- include judge
-- include items
-- include codes
-- include show
for _, job in ipairs(load(ids)) do
  if job.state == 'E' then
    put(numbers, 7, #job.topic)
    put(pieces, job.topic)
  elseif job.state then
    show(job, N[1] == 1)
    if N[1] == 2 then
      put(numbers, job.raw and job.edited or 0, #(job.past or ''))
      put(pieces, job.past or '')
    end
  else
    put(numbers, 0)
  end
end
return reply(0, 0, 0, cmsgpack.pack(numbers), table.concat(pieces))
