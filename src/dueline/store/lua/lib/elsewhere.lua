-- elsewhere: removes a job in any state from the second partition of this call (KEYS 10-16: m s l a d g k). Both
-- partitions share its record and run, which the caller overwrites. Writes at once, because a move between topics is
-- rare and must be complete.
local function leave_other(job)
  local om, os, ol, oa, od, ok = KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[16]
  if job.phase then
    if job.past then
      redis.call('HINCRBY', om, 'hb', -history_bytes(job))
    end
    redis.call('ZREM', os, member(job.seq, job.id))
    redis.call('ZREM', ol, member(job.seq, job.id))
    redis.call('ZREM', oa, 'x' .. job.id, 'e' .. job.id, 't' .. job.id)
    redis.call('ZREM', od, 'w' .. job.id)
    if job.phase == 'L' and job.time > now and tonumber(redis.call('HGET', om, 'mif') or 0) > 0 then
      redis.call('SPUBLISH', ARGV[12], '') -- a place below its in-flight limit became free
    end
    if job.written then
      redis.call('ZREM', od, 'x' .. job.id)
      redis.call('HINCRBY', om, job.phase == 'X' and COUNTER[job.reason] or (string.upper(job.phase) == 'D' and 'nD' or 'nC'), -1)
    end
  end
  each_tag(job, function(entry)
    redis.call('ZREM', ok, entry)
  end)
  if job.phase and job.flags % 4 == 3 then
    end_group(job)
    if job.raw then
      redis.call('ZREM', ok, group_entry(job))
    end
  end
end
