-- log: a page of a log, after lib/reply. The log is a list, newest first; `number` is that of its newest entry.
local STEP = 500

local function int(n)
  return string.format('%.0f', n)
end

local function page(number, matches)
  local newest = N[2] > 0 and math.min(N[2] - 1, number) or number
  local sizes, pieces, skipped = { 0 }, {}, number - newest
  local size = redis.call('LLEN', log)
  for i, entry in ipairs(redis.call('LRANGE', log, skipped, skipped + STEP - 1)) do
    if matches(entry) then
      sizes[#sizes + 1] = #entry
      pieces[#pieces + 1] = entry
    end
    sizes[1] = skipped + i < size and newest - i + 1 or 0
    if #pieces == N[3] then
      break
    end
  end
  return reply(0, 0, 0, cmsgpack.pack(sizes), table.concat(pieces))
end
