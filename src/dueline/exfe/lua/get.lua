#!lua flags=allow-oom
-- get: lock a queue and read its first tasks without removing them.
-- KEYS   1 timer   2 queue   3 locker   4 overwrite   5 start
-- ARGV   1 now or ""   2 key   3 random   4 timeout_s   5 number (< 0: all, 0: one)
-- RETURN the tasks; nil: another random holds the lock; nothing was changed
-- BOUND  O(log N + tasks read)
local timer, queue, locker, overwrite, start = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, key, random, timeout_s, number = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local call = redis.call

-- An object of the wrong type must fail here, before the first write, because scripts are not rolled back.
call('ZCARD', timer)
local tasks = call('LRANGE', queue, 0, number < 0 and -1 or math.max(number, 1) - 1)

call('SET', locker, random, 'EX', timeout_s, 'NX')
if call('GET', locker) ~= random then
  return false
end
now = tonumber(now ~= '' and now or call('TIME')[1])
call('DEL', start)
call('SET', overwrite, '1')
call('ZADD', timer, string.format('%.0f', now + timeout_s), key)
return tasks
