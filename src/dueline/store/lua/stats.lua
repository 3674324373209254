#!lua flags=no-writes
-- stats: counts of a partition, without scans.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 ""   3 ""   4 ""   5 numbers   6 ""
--        numbers  empty, or: 1 if the edges count from now and 0 if they are times, then the edges, ms
-- RETURN status now 0 0 numbers ""
--        numbers  scheduled, ready, leased, done, cancelled, broken, dead by reason x 4, next due (-1), oldest ready (-1), paused until (-1),
--                 whether a pull waits, bytes of histories, entries of them that did not fit, then per edge the scheduled jobs that are due from it on and before the next one
-- BOUND  (12 + edges) x O(log N)
local FIELDS = { 'pu', 'nD', 'nC', 'nB', 'x1', 'x2', 'x3', 'x4', 'hb', 'hd' }
-- include time
-- include head
-- include tools
-- include reply
local function between(key, from, to)
  return redis.call('ZCOUNT', key, from, to)
end

local function top(key, from)
  local list = redis.call('ZRANGEBYSCORE', key, from, int(LAST), 'WITHSCORES', 'LIMIT', 0, 1)
  return list[2] and tonumber(list[2]) or -1
end

local n, later, last = int(now), '(' .. int(now), int(LAST)
local oldest = top(s, '-inf')
local over = top(l, '-inf')
if over >= 0 and over <= now and (oldest < 0 or oldest > now or over < oldest) then
  oldest = over
end
local paused = M.pu and tonumber(M.pu) > now and tonumber(M.pu) or -1
local result = {
  between(s, later, last), between(s, '-inf', n) + between(l, '-inf', n), between(l, later, last),
  tonumber(M.nD or 0), tonumber(M.nC or 0), tonumber(M.nB or 0),
  tonumber(M.x1 or 0), tonumber(M.x2 or 0), tonumber(M.x3 or 0), tonumber(M.x4 or 0),
  top(s, later), oldest >= 0 and oldest <= now and oldest or -1, paused, waited and 1 or 0,
  tonumber(M.hb or 0), tonumber(M.hd or 0),
}
local edges = cmsgpack.unpack(ARGV[5])
local base = edges[1] == 1 and now + 1 or 0
for i = 2, #edges do
  local to = edges[i + 1] and math.min(base + edges[i + 1] - 1, LAST) or LAST
  put(result, between(s, int(math.max(base + edges[i], now + 1)), int(to)))
end
return reply(0, 0, 0, cmsgpack.pack(result), '')
