#!lua flags=allow-oom
-- extend: prolong a lease, never shorten it; renews an expired lease while its token is current.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  per job: id size, token size, lease_ms
--        blob     per job: id, token
-- RETURN status now note extra numbers (per job: code, deadline)   blob
-- BOUND  O(n log N), n <= 500
local FIELDS = {}
-- include time
-- include head
-- include tools
-- include reply
-- include write
-- include record
-- include judge
-- include codes
-- include refs
if again then
  return earlier_reply()
end
local ids, tokens, N = refs(3)
if not known and not topic then
  return none_found(#ids, 2)
end
local jobs, results = load(ids), {}
for i, job in ipairs(jobs) do
  local code, deadline = OK, 0
  if job.state == nil then
    code = NOT_FOUND
  elseif job.state == 'E' then
    code = ELSEWHERE
  elseif job.phase ~= 'L' or job.state == 'X' or tokens[i] ~= job.token then
    code = LEASE_LOST
  else
    deadline = math.max(job.time, math.min(start + N[3 * i], LAST))
    job.time, job.changed = deadline, start
    collect('hr', job.id, run_text(job, 'L'))
    collect('zl', int(deadline), member(job.seq, job.id))
    if job.policy.max > 0 and job.deliveries - job.uncounted >= job.policy.max then
      collect('za', int(deadline), 'e' .. job.id)
      work_at(deadline)
    end
  end
  results[2 * i - 1], results[2 * i] = code, deadline
end
return finish(results, '')
