#!lua flags=allow-oom
-- complete: remove the first tasks of a locked queue and unlock it; an empty queue is deleted with all its objects.
-- KEYS   1 timer   2 queue   3 data   4 locker   5 overwrite   6 start
-- ARGV   1 key   2 number (< 0: all)   3 the random that must hold the lock, or "" for any
-- RETURN 1; 0: not locked, or locked by another random; nothing was changed
-- BOUND  O(log N + tasks removed)
local timer, queue, data, locker, overwrite, start = unpack(KEYS, 1, 6)
local key, number, random = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local call = redis.call

local holder = call('GET', locker)
if not holder or (random ~= '' and holder ~= random) then
  return 0
end
-- An object of the wrong type must fail here, before the first write, because scripts are not rolled back.
call('ZCARD', timer)
call('LLEN', queue)

call('DEL', overwrite, start)
if number < 0 then
  call('UNLINK', queue)
else
  call('LTRIM', queue, number, -1)
end
if call('EXISTS', queue) == 0 then
  call('UNLINK', data)
  call('ZREM', timer, key)
end
call('DEL', locker)
return 1
