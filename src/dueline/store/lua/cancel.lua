#!lua flags=allow-oom
-- cancel: cancel jobs in any live state; a current lease ends. `forget` leaves no tombstone and removes ended jobs too.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  per job: id size, token size (0), what (1 forget, 2 spare a leased one, 4 an overdue one)
--        blob     the ids
-- RETURN status now note extra numbers (per job: code)   blob
-- BOUND  O(n log N), n <= 500
local FIELDS = {}
-- include time
-- include head
-- include tools
-- include reply
-- include write
-- include record
-- include judge
-- include items
-- include ends
-- include codes
-- include refs
if again then
  return earlier_reply()
end
local ids, _, N = refs(3)
if not known and not topic then
  return none_found(#ids, 1)
end
local jobs, results = load(ids), {}
for i, job in ipairs(jobs) do
  local state, what = job.state, N[3 * i]
  local gone, spare_leased, spare_overdue = what % 2 == 1, what % 4 >= 2, what >= 4
  if state == nil then
    results[i] = NOT_FOUND
  elseif state == 'E' then
    results[i] = ELSEWHERE
  elseif state == 'l' and spare_leased then
    results[i] = JOB_LEASED
  elseif (state == 's' or state == 'r' or state == 'l') and not (spare_overdue and is_overdue(job)) then
    results[i] = OK
    if gone then
      forget(job)
    else
      job.token = NO_TOKEN
      close(job, 'C')
    end
  else
    results[i] = state == 'C' and OK or ALREADY_DONE
    if gone then
      forget(job)
    end
  end
end
return finish(results, '')
