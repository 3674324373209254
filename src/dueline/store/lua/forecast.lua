#!lua flags=no-writes
-- forecast: what falls due between given times, summed over many partitions. Retries that wait, and topics that are paused, are
--           counted apart.
-- KEYS   s d of every partition
-- ARGV   1 now_ms or ""   2 ""   3 ""   4 ""   5 numbers   6 ""
--        numbers  how many edges, the edges (ms), then per partition: how many bands begin while its topic is paused
-- RETURN status now 0 0 numbers ""
--        numbers  per band (edges less one): counts; per band: retries; per band: paused; all from the last edge on; per partition: counts
-- BOUND  64 partitions x (3 + 2 x edges) x O(log N), 32 entries read of each
local SMALL = 32 -- with so few jobs, reading their times costs less than counting between the edges
-- include time
-- include reply
-- include retries
local call = redis.call
local N = cmsgpack.unpack(ARGV[5])
local bands = N[1] - 1
local counts, retries, paused, by_partition, later = {}, {}, {}, {}, 0

-- The bounds of band i are low[i] and high[i], as scores and as texts; band bands + 1 is all after the last edge.
local edges, lows, highs, retry_lows, retry_highs = {}, {}, {}, {}, {}
for i = 1, N[1] do
  edges[i] = math.max(N[i + 1], now + 1)
  counts[i], retries[i], paused[i] = 0, 0, 0
end
edges[N[1] + 1] = LAST + 1
for i = 1, N[1] do
  lows[i], highs[i] = string.format('%d', edges[i]), string.format('%d', edges[i + 1] - 1)
  retry_lows[i], retry_highs[i] = string.format('%d', RETRIES + edges[i]), string.format('%d', RETRIES + edges[i + 1] - 1)
end

-- Adds `total`, the entries of bands first to last, to `into`. It asks only where there are any.
local function split(key, from, to, first, last, total, into)
  if total == 0 then
    return
  elseif first == last then
    into[first] = into[first] + total
    return
  end
  local middle = math.floor((first + last) / 2)
  local left = call('ZCOUNT', key, from[first], to[middle])
  split(key, from, to, first, middle, left, into)
  split(key, from, to, middle + 1, last, total - left, into)
end

-- The entries of a partition's index per band.
local function counts_of(key, from, to, offset)
  local total = call('ZCOUNT', key, from[1], to[N[1]])
  if total == 0 then
    return nil
  end
  local found = {}
  for i = 1, N[1] do
    found[i] = 0
  end
  if total > SMALL then
    split(key, from, to, 1, N[1], total, found)
    return found
  end
  local list, band = call('ZRANGEBYSCORE', key, from[1], to[N[1]], 'WITHSCORES'), 1
  for i = 2, #list, 2 do
    local time = tonumber(list[i]) - offset
    while time >= edges[band + 1] do
      band = band + 1
    end
    found[band] = found[band] + 1
  end
  return found
end

for p = 1, #KEYS / 2 do
  local all, sum = counts_of(KEYS[2 * p - 1], lows, highs, 0), 0
  if all then
    local again, pause = counts_of(KEYS[2 * p], retry_lows, retry_highs, RETRIES), N[N[1] + 1 + p]
    for i = 1, bands do
      if i <= pause then
        paused[i] = paused[i] + all[i]
      elseif all[i] > 0 then
        local waits = again and again[i] or 0
        retries[i] = retries[i] + waits
        counts[i] = counts[i] + all[i] - waits
        sum = sum + all[i] - waits
      end
    end
    later = later + all[N[1]]
  end
  by_partition[p] = sum
end
local result = {}
for _, list in ipairs({ counts, retries, paused }) do
  for i = 1, bands do
    result[#result + 1] = list[i]
  end
end
result[#result + 1] = later
for p = 1, #by_partition do
  result[#result + 1] = by_partition[p]
end
return reply(0, 0, 0, cmsgpack.pack(result), '')
