-- time: read once a call, and judged.
local LAST = 253402300799999
local now, start -- what is over is judged by the past millisecond, what begins counts from the next one
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
  start = now
else
  local t = redis.call('TIME')
  local us = tonumber(t[2])
  now = tonumber(t[1]) * 1000 + math.floor(us / 1000)
  start = us % 1000 > 0 and now + 1 or now
end
local stepped = false -- this clock is not where the caller expects it: nothing may be changed by it
if ARGV[2] ~= '' then
  local expected, tolerance = string.match(ARGV[2], '^(%d+):(%d+)$')
  stepped = math.abs(now - tonumber(expected)) > tonumber(tolerance)
end
