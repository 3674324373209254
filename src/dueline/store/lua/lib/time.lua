-- time: read the clock once per call, and compare it with the time that the caller expects. ARGV[2] is empty, or
-- expected now, tolerance (0 = anything goes), and for changes that take a send number the data that the caller expects
-- (lib/epoch, lib/lost): the highest send number, all three as doubles, then the epoch.
local LAST = 253402300799999
local now, start -- rounded down, to judge what has passed; rounded up, for times that begin now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
  start = now
else
  local t = redis.call('TIME')
  local micros = t[2] + 0 -- of this second
  local us = micros % 1000
  now = t[1] * 1000 + (micros - us) / 1000
  start = us > 0 and now + 1 or now
end
local stepped = false -- the clock is not where the caller expects it: change nothing
local highest = 0
if ARGV[2] ~= '' then
  local expected, tolerance
  expected, tolerance, highest = struct.unpack('>ddd', ARGV[2])
  stepped = tolerance > 0 and (now - expected > tolerance or expected - now > tolerance)
end
