#!lua flags=allow-oom
-- release: give a leased job back, now or later; it is dead if its attempts are used up or the caller discards it.
--          A failed merge group moves its items to the open group of its key.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  per job: id size, token size, delay (-1 = the retry policy, -time = at that time), counts (0/1), dead reason (0 = none),
--                 jitter draw, error size, progress size (-1 = leave); at the end the budget of histories (lib/history)
--        blob     all ids and tokens, then per job: error text, progress
-- RETURN status now note extra numbers (per job: code, due or 0, reason or 0)   blob
-- BOUND  O(n log N), n <= 500; 2,000 items per failed group
local FIELDS = { 'hb' }
-- include time
-- include head
-- include tools
-- include reply
-- include write
-- include record
-- include judge
-- include items
-- include ends
-- include retries
-- include merge
-- include codes
-- include refs
if again then
  return earlier_reply()
end
local MAX_REFUNDS = 100
local ids, tokens, N, at = refs(8)
local budget = N[#N]
-- include history
if not known and not topic then
  return none_found(#ids, 3)
end
local jobs, results = load(ids), {}
for i, job in ipairs(jobs) do
  local o, token, state = (i - 1) * 8, tokens[i], job.state
  local delay, counts_one, dead, draw, size = N[o + 3], N[o + 4] == 1, N[o + 5], N[o + 6], N[o + 7]
  local text = string.sub(blob, at, at + size - 1)
  at = at + size
  local progress = N[o + 8] >= 0 and string.sub(blob, at, at + N[o + 8] - 1)
  at = at + math.max(N[o + 8], 0)
  local code, due, reason = OK, 0, 0
  if state == nil then
    code = NOT_FOUND
  elseif state == 'E' then
    code = ELSEWHERE
  elseif job.phase ~= 'L' or state == 'X' or (token == '' and state ~= 'l') or (token ~= '' and token ~= job.token) then
    code = LEASE_LOST
  else
    if size > 0 then
      job.error = text
    end
    if progress then
      job.progress = progress ~= '' and progress or nil
    end
    local capped, attempt = job.policy.max > 0, job.deliveries - job.uncounted
    counts_one = counts_one or (capped and job.given >= MAX_REFUNDS)
    if not counts_one then
      job.uncounted, job.given = job.uncounted + 1, job.given + (capped and 1 or 0)
      collect('ra', 'e' .. job.id)
    end
    local attempts, p = job.deliveries - job.uncounted, job.policy
    if dead > 0 then
      reason = dead
    elseif counts_one and p.max > 0 and attempts >= p.max then
      reason = EXHAUSTED
    elseif job.exp > 0 and job.exp <= now then
      reason = EXPIRED
    end
    job.token = NO_TOKEN
    local into = reason == 0 and job.flags % 4 == 3 and counts_one and give_to_open(job)
    if reason > 0 then
      code = DEAD
      bury(job, reason, start)
    elseif into then
      due = into.due
    else
      local wait = delay
      if wait == -1 then
        wait = 0
        if p.n > 0 then
          wait = wait_of(p, math.min(math.max(attempts, 1), p.n))
          wait = math.floor(wait * (1 - p.jitter * draw))
        end
      end
      due = wait == 0 and now or math.min(wait < 0 and math.max(-wait, now) or start + wait, LAST)
      if delay == 0 and not counts_one then
        due = math.min(job.due, now) -- returned unused: it keeps its old place in the order
      end
      collect('rl', member(job.seq, job.id))
      collect('zs', int(due), member(job.seq, job.id))
      if attempts > 0 then
        collect('zd', int(RETRIES + due), 'w' .. job.id)
      end
      freed = freed or job.time > now
      job.time, job.due, job.changed = due, due, start
      remember(job, RELEASED, start, attempt, due, nil, text)
      collect('hr', job.id, run_text(job, 'W'))
      deliverable_at(due)
    end
  end
  results[3 * i - 2], results[3 * i - 1], results[3 * i] = code, due, reason
end
return finish(results, '')
