#!lua flags=allow-oom
-- fence: write the fences of schedules, or read a page of them.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  what (1 write, 2 read), then for 1 per fence: schedule size, version, at, gone (0/1)
--        blob     1: the schedules   2: the cursor
-- RETURN status now note extra numbers blob
--        numbers  1: per fence: version, at, gone (0/1), as they are now
--                 2: cursor size, then per fence: schedule size, version, at, gone (0/1)   blob: cursor, schedules
-- BOUND  500 fences to write; 100 fields of the partition to read, all if it has few
local FIELDS = {}
-- include time
-- include head
-- include tools
-- include reply
-- include write
-- include codes
-- include fence
if again then
  return earlier_reply()
end
local N, results, at = cmsgpack.unpack(ARGV[5]), {}, 1
if N[1] == 1 then
  open_partition()
  for o = 2, #N, 4 do
    local schedule = string.sub(blob, at, at + N[o] - 1)
    at = at + N[o]
    local fence = write_fence(schedule, N[o + 1], N[o + 2], N[o + 3] == 1)
    put(results, fence.version, fence.at)
    put(results, fence.gone > 0 and 1 or 0)
  end
  keep_fences()
  return finish(results, '')
end
local page = redis.call('HSCAN', m, blob == '' and '0' or blob, 'MATCH', 'o:*', 'COUNT', 100)
local cursor, pieces = page[1] == '0' and '' or page[1], {}
put(results, #cursor)
for i = 1, #page[2], 2 do
  local schedule = string.sub(page[2][i], 3)
  local version, last, gone = struct.unpack(FENCE, page[2][i + 1])
  put(results, #schedule, version)
  put(results, last, gone > 0 and 1 or 0)
  put(pieces, schedule)
end
return reply(0, 0, 0, cmsgpack.pack(results), cursor .. table.concat(pieces))
