-- history: what happened to a job, kept in its run (lib/record) as at most ten entries. Needs `budget`: the bytes that the
-- histories of a partition may have, 0 = keep none. When an entry no longer fits, it is counted and not kept.
-- entry  tail size:1 what:1 at:6 attempt:3 | [due:6] [sized name of the consumer] error
--        what: one of the numbers below, + 16 due, + 32 name
-- m      hb: the bytes of all histories (history_bytes)   hd: how many entries did not fit
-- Not here: when the job was sent, its last edit before it had a run (edit.lua), and its end. Record and run tell these.
local DELIVERED, RELEASED, LOST, EDITED, DIED, REVIVED = 1, 2, 3, 4, 5, 9 -- DIED + reason - 1
local MOST_ENTRIES, MOST_ERROR = 10, 200

local function remember(job, what, at, attempt, due, by, text)
  if budget == 0 then
    return
  end
  local tail = string.sub(text or '', 1, MOST_ERROR)
  if by and by ~= '' then
    what, tail = what + 32, struct.pack('>Bc0', #by, by) .. tail
  end
  if due then
    what, tail = what + 16, struct.pack('>I6', due) .. tail
  end
  local past, entries = job.past or '', job.entries or 0
  if entries == MOST_ENTRIES then
    past, entries = string.sub(past, 12 + string.byte(past)), entries - 1
  end
  past = past .. struct.pack('>BBI6I3c0', #tail, what, at, math.min(attempt, 16777215), tail)
  local more = #past + (job.past and 0 or PAST_COST) - #(job.past or '')
  if tonumber(M.hb or 0) + (counts.hb or 0) + more > budget then
    count('hd', 1)
    return
  end
  count('hb', more)
  job.past, job.entries = past, entries + 1
end

-- A lease that has expired is recorded when something else happens to its job.
local function remember_lost(job)
  if job.phase == 'L' then
    remember(job, LOST, job.time, job.deliveries - job.uncounted)
  end
end
