#!lua
-- push: append a task, merge the data, set the due time if the rules require it, wake the workers.
-- KEYS   1 timer   2 queue   3 data   4 overwrite   5 start
-- ARGV   1 now or ""   2 channel   3 key   4 task   5 ontime (<= 0: now)   6 always, or anything else for once   7.. field, value
-- RETURN the number of tasks in the queue
-- BOUND  O(log N + data pairs)
local timer, queue, data, overwrite, start = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, channel, key, task, ontime, update = unpack(ARGV, 1, 6)
local call = redis.call

-- An object of the wrong type must fail here, before the first write, because scripts are not rolled back.
call('ZCARD', timer)
call('HLEN', data)
local new = call('LLEN', queue) == 0

if tonumber(ontime) <= 0 then
  ontime = now ~= '' and now or call('TIME')[1]
end
local retimed = call('DEL', overwrite) == 1
if new or retimed or update == 'always' then
  call('ZADD', timer, ontime, key)
  call('DEL', start) -- how long it was offered at the old time no longer counts
end
local length = call('RPUSH', queue, task)
for i = 7, #ARGV, 2 do
  call('HSET', data, ARGV[i], ARGV[i + 1])
end
call('PUBLISH', channel, 'insert')
return length
