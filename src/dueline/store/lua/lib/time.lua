-- time: read the clock once per call, and compare it with the time that the caller expects.
local LAST = 253402300799999
local now, start -- rounded down, to judge what has passed; rounded up, for times that begin now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
  start = now
else
  local t = redis.call('TIME')
  local us = tonumber(t[2])
  now = tonumber(t[1]) * 1000 + math.floor(us / 1000)
  start = us % 1000 > 0 and now + 1 or now
end
local stepped = false -- the clock is not where the caller expects it: change nothing
if ARGV[2] ~= '' then
  local expected, tolerance = string.match(ARGV[2], '^(%d+):(%d+)$')
  stepped = math.abs(now - tonumber(expected)) > tonumber(tolerance)
end
