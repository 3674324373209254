-- time: read the clock once per call, and compare it with the time that the caller expects. Reads ARGV[2], which for
-- changes that take a send number also has the data that the caller expects (lib/epoch, lib/lost).
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
local epoch, highest
if ARGV[2] ~= '' then
  local expected, tolerance
  expected, tolerance, epoch, highest = string.match(ARGV[2], '^(%d*):(%d*):?([^:]*):?(%d*)$')
  stepped = expected ~= '' and math.abs(now - tonumber(expected)) > tonumber(tolerance)
end
