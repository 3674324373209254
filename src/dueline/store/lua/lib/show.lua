-- show: encodes a job for a reader, as numbers and pieces of the answer.
--        per job: state, id size, reason, deliveries, uncounted, lease until, due, expires, updated, ended, retained until,
--                 record size, what the record holds (0 head, 1 without body, 2 all), policy size, error size,
--                 progress size
--        The record of a group always has its key; with the body it also has its items (lib/items).
local numbers, pieces, shown_bytes = {}, {}, 0

local function show(job, with_body)
  local state = job.state
  local ended = state == 'X' or state == 'D' or state == 'C'
  local record, holds = job.head, 0
  if job.raw then
    record, holds = job.raw, 2
    if job.flags % 4 == 3 then
      record = with_body and record_with_items(job) or record
      holds = with_body and 2 or 1
      if job.fresh then
        if not with_body then
          read_meta(job, g)
        end
        job.changed = math.max(job.changed, job.appended)
      end
    elseif not with_body then
      record, holds = string.sub(record, 1, job.body_at - 1), 1
    end
  elseif job.flags % 4 == 3 then
    record = record .. (redis.call('HGET', g, 'm' .. job.id) or '\0\0') -- begins with the key
  end
  local retained = 0
  if ended then
    retained = job.written and job.time or math.min(job.at + job.policy.dead, LAST)
  end
  put(numbers, STATE[state], #job.id)
  put(numbers, state == 'X' and job.reason or 0, job.deliveries)
  put(numbers, job.uncounted, state == 'l' and job.time or 0)
  put(numbers, job.due, job.exp)
  put(numbers, (ended and not job.written) and job.at or job.changed, ended and job.at or 0)
  put(numbers, retained, #record)
  put(numbers, holds, #job.policy.text)
  put(numbers, #job.error, #(job.progress or ''))
  put(pieces, job.id, record)
  put(pieces, job.policy.text, job.error)
  put(pieces, job.progress or '')
  shown_bytes = shown_bytes + #record
end
