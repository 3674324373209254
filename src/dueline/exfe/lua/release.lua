#!lua flags=allow-oom
-- release: unlock a queue, keep its tasks, and optionally set when it is due again.
-- KEYS   1 timer   2 queue   3 locker   4 start
-- ARGV   1 channel   2 key   3 ontime or "" (the time stays)   4 the random that may hold the lock, or "" for any
-- RETURN 1; 0: another random holds the lock; nothing was changed
-- BOUND  O(log N)
local timer, queue, locker, start = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local channel, key, ontime, random = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call

local holder = call('GET', locker)
if holder and random ~= '' and holder ~= random then
  return 0
end
call('ZCARD', timer) -- fails before the first write if it has the wrong type

call('DEL', locker)
if ontime ~= '' and call('EXISTS', queue) == 1 then
  call('ZADD', timer, ontime, key)
  call('DEL', start)
  call('PUBLISH', channel, 'insert')
end
return 1
