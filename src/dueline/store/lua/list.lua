#!lua flags=no-writes
-- list: one page of a state, tag, due range or merge key, after a cursor.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 ""   3 ""   4 ""   5 numbers   6 blob
--        numbers  state (0 = all), limit, with body, due after (-1), due before (-1), tag size, merge key size (-1: none), cursor size,
--                 newest first (only dead jobs, without a tag)
--        blob     tag, merge key, cursor (index letter, score:8, member)
-- RETURN status now 0 0 numbers blob                numbers: cursor size, then lib/show; blob: cursor, then lib/show
-- BOUND  500 entries inspected, 1 MiB
local FIELDS = {}
-- include time
-- include head
-- include tools
-- include reply
-- include record
-- include judge
-- include items
-- include codes
-- include show
local N = cmsgpack.unpack(ARGV[5])
local wanted, limit, with_body, after, before = N[1], N[2], N[3] == 1, N[4], N[5]
local newest = N[9] == 1
local tag, by_key = string.sub(blob, 1, N[6]), N[7] >= 0
local cursor = string.sub(blob, N[6] + math.max(N[7], 0) + 1)
-- for entries of k: their prefix, the end of the range, and the size of the part before the id
local prefix, past, before_id = tag .. '\0', tag .. '\1', #tag + 1
if by_key then
  prefix = '\1' .. struct.pack(SIZED, N[7], string.sub(blob, N[6] + 1, N[6] + N[7]))
  past, before_id = prefix .. string.rep('\255', 6), #prefix + 5
end
-- letter -> key, and how an entry names its job; in the order in which they are read
local KEY = { s = s, l = l, a = a, d = d, k = k }
local WALKS = { [0] = 'sla', 's', 'sl', 'l', 'a', 'd', 'a' }
local walk = (tag ~= '' or by_key) and 'k' or WALKS[wanted]

local function id_of(letter, entry)
  if letter == 's' or letter == 'l' then
    return string.sub(entry, 6)
  elseif letter == 'k' then
    return string.sub(entry, before_id + 1)
  elseif letter == 'a' then
    return string.sub(entry, 1, 1) == 't' and string.sub(entry, 2) or nil
  end
  return string.sub(entry, 1, 1) == 'x' and string.sub(entry, 2) or nil
end

-- Compares bytes, because Lua's own comparison depends on the server's locale.
local function up_to(text, other)
  for i = 1, math.min(#text, #other) do
    local x, y = string.byte(text, i), string.byte(other, i)
    if x ~= y then
      return x < y
    end
  end
  return #text <= #other
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
    local from = last and '(' .. last or '[' .. prefix
    local list, pairs_ = redis.call('ZRANGEBYLEX', key, from, '(' .. past, 'LIMIT', 0, n), {}
    for i = 1, #list do
      put(pairs_, list[i], 0)
    end
    return pairs_
  end
  local rank
  if newest then
    local at = last and redis.call('ZREVRANK', key, last)
    if at and tonumber(redis.call('ZSCORE', key, last)) == score then
      rank = at + 1
    else
      rank = redis.call('ZCOUNT', key, '(' .. int(last and score or LAST), '+inf') -- waiting retries follow (lib/retries)
    end
    return redis.call('ZREVRANGE', key, rank, rank + n - 1, 'WITHSCORES')
  end
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
    local permanent = time > LAST -- the last entry of a key, so the first of the newest
    if (permanent and not newest) or (wanted == 2 and letter ~= 'k' and time > now) or (letter == 's' and before >= 0 and time >= before) then
      ended = true
      break
    end
    local id = not permanent and id_of(letter, list[i])
    local past_it = newest and last and up_to(last, list[i]) or not newest and last and up_to(list[i], last)
    if id and not (time == score and past_it) then
      put(ids, id)
      put(at, i)
    end
  end
  for n, job in ipairs(load(ids)) do
    if job.state and job.state ~= 'E' and (wanted == 0 or STATE[job.state] == wanted) and (after < 0 or job.due >= after) and (before < 0 or job.due < before)
      and (letter ~= 'a' or job.written) and not (by_key and STATE[job.state] > 3) then
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
return reply(0, 0, 0, cmsgpack.pack(numbers), place .. table.concat(pieces))
