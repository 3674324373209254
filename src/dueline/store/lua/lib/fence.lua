-- fence: what this partition has decided of the schedules that send to it (engine.fence).
-- m      'o:' schedule -> version:6 at:6 gone:6     (gone: since when the schedule no longer sends here, 0 = it does)
--        'on'          -> how many there are
-- a      'o' schedule  -> when the fence of a schedule that is gone ends
local GONE_KEEP, FENCE = 2592000000, '>I6I6I6'
local fences = {}

local function fence_of(schedule)
  local fence = fences[schedule]
  if fence == nil then
    local text = redis.call('HGET', m, 'o:' .. schedule)
    fence = { version = -1, at = 0, gone = 0 }
    if text then
      fence.version, fence.at, fence.gone = struct.unpack(FENCE, text)
    end
    fence.stored = fence.gone
    fences[schedule] = fence
  end
  return fence
end

-- The code if the fence decides about an occurrence; nil: it may be sent.
local function decided(schedule, version, at)
  local fence = fence_of(schedule)
  if version < fence.version or (version == fence.version and fence.gone > 0) then
    return VERSION_MISMATCH
  elseif fence.version >= 0 and at <= fence.at then
    return KEPT
  end
end

-- Never lowers what is stored: an older version changes nothing, the later occurrence stays.
local function write_fence(schedule, version, at, gone)
  local fence = fence_of(schedule)
  if version < fence.version then
    return fence
  end
  if fence.version < 0 then
    count('on', 1)
  end
  if version > fence.version and fence.gone > 0 then
    fence.gone = 0
  end
  fence.version, fence.at = version, math.max(fence.at, at)
  if gone and fence.gone == 0 then
    fence.gone = start
  end
  fence.written = true
  return fence
end

-- Collects the fences that have changed, and what the agenda says of them at the end of the call.
local function keep_fences()
  for schedule, fence in pairs(fences) do
    if fence.written then
      put(set, 'o:' .. schedule, struct.pack(FENCE, fence.version, fence.at, fence.gone))
      if fence.gone > 0 and fence.gone ~= fence.stored then
        collect('za', int(fence.gone + GONE_KEEP), 'o' .. schedule)
        work_at(fence.gone + GONE_KEEP)
      elseif fence.gone == 0 and fence.stored > 0 then
        collect('ra', 'o' .. schedule)
      end
    end
  end
end
