#!lua flags=allow-oom
-- ack: complete a job. With a token: the holder of its lease; without one: from any live state.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected:tolerance or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  per job: id size, token size (0 or 12)
--        blob     per job: id, token
-- RETURN status now note extra numbers (per job: code)   blob
-- BOUND  O(n log N), n <= 500
local FIELDS = {}
-- include time
-- include head
-- include write
-- include record
-- include judge
-- include items
-- include ends
-- include codes
-- include refs
local again = earlier_reply()
if again then
  return again
end
local ids, tokens = refs(2)
if not known and not topic then
  return none_found(#ids, 1)
end
local jobs, results = load(ids), {}
for i, job in ipairs(jobs) do
  local token, state, code = tokens[i], job.state, nil
  if state == nil then
    code = NOT_FOUND
  elseif state == 'E' then
    code = ELSEWHERE
  elseif state == 'D' then
    code = token == '' and ALREADY_DONE or (token == job.token and OK or LEASE_LOST)
  elseif state == 'X' or state == 'C' then
    code = token == '' and ALREADY_DONE or LEASE_LOST
  elseif token ~= '' and (job.phase ~= 'L' or token ~= job.token) then
    code = LEASE_LOST
  else
    code = OK
    close(job, 'D')
  end
  results[i] = code
end
return finish(results, '')
