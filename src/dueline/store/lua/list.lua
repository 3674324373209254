#!lua flags=no-writes
-- list: one page of a state, tag or due range, after a cursor.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 ""   3 ""   4 ""   5 numbers   6 blob
--        numbers  state (0 = all), limit, with body, due after (-1), due before (-1), tag size, cursor size
--        blob     tag, cursor (index letter, score:8, member)
-- RETURN status now 0 0 numbers blob                numbers: cursor size, then lib/show; blob: cursor, then lib/show
-- BOUND  500 entries inspected, 1 MiB
local FIELDS = {}
-- include head
-- include record
-- include judge
-- include codes
-- include show
local N = cmsgpack.unpack(ARGV[5])
local wanted, limit, with_body, after, before = N[1], N[2], N[3] == 1, N[4], N[5]
local tag, cursor = string.sub(blob, 1, N[6]), string.sub(blob, N[6] + 1)
-- letter -> key, and how an entry of it names its job; in the order in which they are walked
local KEY = { s = s, l = l, a = a, d = d, k = k }
local WALKS = { [0] = 'sla', 's', 'sl', 'l', 'a', 'd', 'a' }
local walk = tag ~= '' and 'k' or WALKS[wanted]

local function id_of(letter, entry)
  if letter == 's' or letter == 'l' then
    return string.sub(entry, 6)
  elseif letter == 'k' then
    return string.sub(entry, #tag + 2)
  elseif letter == 'a' then
    return string.sub(entry, 1, 1) == 't' and string.sub(entry, 2) or nil
  end
  return string.sub(entry, 1, 1) == 'x' and string.sub(entry, 2) or nil
end

local place, found, inspected = nil, 0, 0
local index, score, last = 1, nil, nil
if cursor ~= '' then
  index = string.find(walk, string.sub(cursor, 1, 1), 1, true) or #walk + 1
  score, last = struct.unpack('>d', cursor, 2), string.sub(cursor, 10)
end

local function entries(letter, n)
  local key = KEY[letter]
  if letter == 'k' then
    local from = last and '(' .. last or '[' .. tag .. '\0'
    local list, pairs_ = redis.call('ZRANGEBYLEX', key, from, '(' .. tag .. '\1', 'LIMIT', 0, n), {}
    for i = 1, #list do
      put(pairs_, list[i], 0)
    end
    return pairs_
  end
  local rank
  if last then
    local at = redis.call('ZRANK', key, last)
    if at and tonumber(redis.call('ZSCORE', key, last)) == score then
      rank = at + 1
    else
      rank = redis.call('ZCOUNT', key, '-inf', '(' .. int(score))
    end
  else
    local low = '-inf'
    if letter == 's' and after >= 0 then
      low = int(after)
    elseif wanted == 1 or wanted == 3 then
      low = '(' .. int(now)
    end
    rank = low == '-inf' and 0 or redis.call('ZCARD', key) - redis.call('ZCOUNT', key, low, '+inf')
  end
  return redis.call('ZRANGE', key, rank, rank + n - 1, 'WITHSCORES')
end

while index <= #walk and not place do
  local letter = string.sub(walk, index, index)
  local list = entries(letter, 100)
  local ids, at = {}, {}
  local ended = #list < 200
  for i = 1, #list, 2 do
    local time = tonumber(list[i + 1])
    inspected = inspected + 1
    if time > LAST or (wanted == 2 and letter ~= 'k' and time > now) or (letter == 's' and before >= 0 and time >= before) then
      ended = true
      break
    end
    local id = id_of(letter, list[i])
    if id and not (last and time == score and list[i] <= last) then
      put(ids, id)
      put(at, i)
    end
  end
  for n, job in ipairs(load(ids)) do
    if job.state and job.state ~= 'E' and (wanted == 0 or STATE[job.state] == wanted) and (after < 0 or job.due >= after) and (before < 0 or job.due < before)
      and (letter ~= 'a' or job.written) then
      show(job, with_body)
      found = found + 1
    end
    if found >= limit or shown_bytes > 1048576 then
      place = letter .. struct.pack('>d', tonumber(list[at[n] + 1])) .. list[at[n]]
      break
    end
  end
  if not place then
    if ended then
      index, score, last = index + 1, nil, nil
    else
      score, last = tonumber(list[#list]), list[#list - 1]
      if inspected >= 500 then
        place = letter .. struct.pack('>d', score) .. last
      end
    end
  end
end
place = place or ''
table.insert(numbers, 1, #place)
return { 0, now, 0, 0, cmsgpack.pack(numbers), place .. table.concat(pieces) }
