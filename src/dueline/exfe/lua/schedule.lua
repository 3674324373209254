#!lua flags=allow-oom
-- schedule: the first due queue that is not locked, or how long until one is due. Drops queues that no worker takes.
-- KEYS   1 timer; the script itself builds the names of the other objects, as the original does: one Redis, not a Cluster
-- ARGV   1 now or ""   2 purge_after_s or "" (never)   3 prefix of a key   4 data   5 locker   6 overwrite   7 start
--        (4-7: suffixes of a key)
-- RETURN seconds (0: get the key; -1: nothing is scheduled)   key or ""
-- BOUND  O((p + l) log N): p queues dropped, l queues due and locked (at most one per worker)
local timer = KEYS[1]
local now, purge_after_s = ARGV[1], tonumber(ARGV[2])
local before, DATA, LOCKER, OVERWRITE, START = unpack(ARGV, 3, 7)
local PAGE = 16
local call = redis.call
now = tonumber(now ~= '' and now or call('TIME')[1])
local now_text = string.format('%.0f', now)

local wait_s = -1
local function wait_at_most(seconds)
  if wait_s < 0 or seconds < wait_s then
    wait_s = seconds
  end
end

local passed = 0
while true do
  local due = call('ZRANGEBYSCORE', timer, '-inf', now_text, 'LIMIT', passed, PAGE)
  if #due == 0 then
    break
  end
  for _, key in ipairs(due) do
    local queue = before .. key
    local lock_ms = call('PTTL', queue .. LOCKER)
    if lock_ms ~= -2 then
      -- A worker holds it. Clear the start: otherwise the locked time would count and the queue be dropped afterwards.
      call('DEL', queue .. START)
      passed = passed + 1
      if lock_ms >= 0 then
        wait_at_most(math.max(1, math.ceil(lock_ms / 1000)))
      end
    else
      local started = tonumber(call('GET', queue .. START) or '')
      if not started then
        call('SET', queue .. START, now_text)
        return { 0, key }
      end
      if not purge_after_s or now - started < purge_after_s then
        return { 0, key }
      end
      call('UNLINK', queue, queue .. DATA, queue .. OVERWRITE, queue .. START)
      call('ZREM', timer, key)
    end
  end
end
local next_one = call('ZRANGEBYSCORE', timer, '(' .. now_text, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
if next_one[2] then
  wait_at_most(math.min(math.ceil(tonumber(next_one[2]) - now), 2 ^ 53)) -- another client may have written inf
end
return { wait_s, '' }
