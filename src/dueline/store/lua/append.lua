#!lua
-- append: merging sends; each adds an item to the open group of its key, or opens one (engine/store.py, Merge).
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time)   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  policy_version, count of policies, their sizes, count of items, then per item:
--                 id size, rest size, key size, item id size, body size, flags, policy index, when (delay, or -at), ttl,
--                 quiet (-1 none), max wait (-1 none), max items (+ 32768: waits when full), max bytes, update (0 once, 1 always)
--        blob     the policies, then per item: id of the group if one is opened, rest (crc, fingerprint, sections), key,
--                 crc and kind and sized item id, body
--        9 ""   10 topic   11 another topic whose keys m s l a d g k are KEYS 10-16   12 its channel   (namespaces with `namespace_ids`)
-- RETURN status now note extra numbers (per item: code, state, due, version, count of items, size of the name)
--        blob (the names: of the group; with code ELSEWHERE of the topic, as in send.lua); code MOVED and status 3 as in
--        send.lua
-- BOUND  O(n log N), n <= 500 items and 1 MiB; opening a group checks 100 of its key and moves at most 1,000 items
local N = cmsgpack.unpack(ARGV[5])
local texts, at = {}, 1
local FIELDS = { 'ep', 'pv', 'xc', 'pn' }
for i = 1, N[2] do
  texts[i] = string.sub(ARGV[6], at, at + N[2 + i] - 1)
  FIELDS[4 + i] = 'q' .. texts[i]
  at = at + N[2 + i]
end
-- include time
-- include head
-- include opening
-- include tools
-- include reply
-- include write
-- include record
-- include judge
-- include items
-- include ends
-- include codes
-- include elsewhere
-- include merge
if again then
  return earlier_reply()
end
-- include closed
if topic and closed and not known and not opens then -- as in send.lua
  local answers = {}
  for _ = 1, N[3 + N[2]] do
    for _, number in ipairs({ MOVED, 0, 0, closed, 0, 0 }) do
      put(answers, number)
    end
  end
  return reply(0, 0, 0, cmsgpack.pack(answers), '')
end
-- include epoch
if M.pv and tonumber(M.pv) > N[1] or not M.pv and N[1] > 0 and not (topic and closed) then -- as in send.lua
  return reply(2, tonumber(M.pv or 0), 0, '', '')
end

open_partition()
-- include intern
for i = 1, N[2] do
  if interned[i] > 0 then
    policies[interned[i]] = policy(0, texts[i], m) -- including those that are not written yet
  end
end

local WIDTH, base = 14, 3 + N[2]
local results, names = {}, {}
local by_key, by_id, given = {}, {}, {} -- groups changed by this call; groups whose items it moved

local function take(size)
  local text = string.sub(blob, at, at + size - 1)
  at = at + size
  return text
end

local function answer(code, job, items)
  put(results, code, STATE[job.state])
  put(results, job.due, job.seq)
  put(results, items, #job.id)
  put(names, job.id)
end

local function refuse(code, state, due, version, name)
  put(results, code, state)
  put(results, due, version)
  put(results, 0, #name)
  put(names, name)
end

local function wanted_at(send)
  local when = send.quiet >= 0 and send.quiet or send.when
  if when == 0 then
    return now
  elseif when > 0 then
    return math.min(start + when, LAST)
  end
  return math.min(math.max(-when, now), LAST)
end

local function open_now(key)
  local group = by_key[key]
  if group == nil then
    group = open_of(key) or false
    by_key[key] = group
    if group then
      by_id[group.id] = group
    end
  end
  return group and not group.closed and (group.state == 's' or group.state == 'r') and group or nil
end

-- The readable group that has, or had, an item with this id.
local function holder(send)
  local id = redis.call('HGET', g, 'i' .. send.sized_key .. send.item_id)
  local job = id and (by_id[id] or load({ id })[1])
  if job and job.state and job.state ~= 'E' and job.flags % 4 == 3 then
    if job.raw then
      read_meta(job, g)
    end
    return job
  end
end

local function add(group, send)
  seq = seq + 1
  group.count, group.bytes = group.count + 1, group.bytes + send.size
  redis.call('HSET', g, 'n' .. struct.pack('>I2', group.count) .. group.id, struct.pack('>I5', seq) .. send.item)
  if send.item_id ~= '' then
    redis.call('HSET', g, 'i' .. send.sized_key .. send.item_id, group.id)
  end
  keep_meta(group)
end

-- Groups of a key that wait for their retry, oldest first. A group with an expired lease is not included, because its
-- holder may still ack until a pull finds it.
local function failed(send)
  local prefix, ids, found = '\1' .. send.sized_key, {}, {}
  for i, entry in ipairs(redis.call('ZRANGEBYLEX', k, '[' .. prefix, '(' .. prefix .. string.rep('\255', 6), 'LIMIT', 0, 100)) do
    ids[i] = string.sub(entry, #prefix + 6)
  end
  for _, job in ipairs(load(ids)) do
    if (job.state == 's' or job.state == 'r') and job.phase == 'W' and job.deliveries > job.uncounted and not given[job.id] then
      put(found, job)
    end
  end
  return found
end

local function open(send)
  local number, flags, rest = interned[send.policy], send.flags, send.rest
  if number == 0 then
    local text = texts[send.policy]
    flags = flags + 64
    rest = string.sub(rest, 1, 12) .. struct.pack(SIZED, #text, text) .. string.sub(rest, 13)
  end
  seq = seq + 1
  local cap = send.max_wait >= 0 and math.min(start + send.max_wait, LAST) or LAST
  local record = struct.pack(HEAD, flags, number, seq, start) .. rest
    .. struct.pack('>I5I6I2I4', seq, cap, send.max_items, send.max_bytes) .. send.sized_key
  local group = { id = send.id, count = 0, bytes = 0 }
  read_whole(group, record)
  read_group(group)
  collect('hj', group.id, record)
  collect('zk', 0, group_entry(group))
  each_tag(group, function(entry)
    collect('zk', 0, entry)
  end)
  redis.call('HSET', g, 'k' .. group.key, group.id)
  by_key[group.key], by_id[group.id] = group, group
  local due = math.min(wanted_at(send), cap)
  started(group, due)
  move(group, due)
  add(group, send)
  for _, job in ipairs(failed(send)) do
    if give(job, group) then
      given[job.id] = true
    end
  end
  flush_if_full(group)
  answer(CREATED, group, group.count)
end

-- Whether a new group can have this id; if not, the answer for the item is set.
local function free(id)
  local old = by_id[id] or load({ id })[1]
  if old.state == 'E' or (old.home and old.home ~= m) then
    if old.state ~= 'E' and old.state == nil then
      leave_other(old)
      collect('dr', old.id)
      return true
    end
    refuse(ELSEWHERE, STATE[old.state] or 0, 0, 0, old.topic)
    return false
  elseif old.state == nil then
    if old.phase then
      forget(old) -- its retention is over, but clean-up has not run yet
    elseif old.raw then
      collect('dj', old.id)
    end
    return true
  end
  refuse(ID_EXISTS, STATE[old.state], old.due, old.seq, '')
  return false
end

for i = 0, N[base] - 1 do
  local o = base + i * WIDTH
  local send = {
    id = take(N[o + 1]), rest = take(N[o + 2]), key = take(N[o + 3]), size = N[o + 5], flags = N[o + 6], policy = N[o + 7],
    when = N[o + 8], quiet = N[o + 10], max_wait = N[o + 11], max_items = N[o + 12], max_bytes = N[o + 13], update = N[o + 14],
  }
  send.item = take(7 + N[o + 4] + N[o + 5])
  send.item_id, send.sized_key = string.sub(send.item, 8, 7 + N[o + 4]), struct.pack(SIZED, #send.key, send.key)
  local has = send.item_id ~= '' and holder(send)
  if has then
    answer(KEPT, has, has.raw and has.count or 0)
  else
    local group = open_now(send.key)
    if group and group.count < group.max_items and group.bytes + send.size <= group.max_bytes then
      if send.quiet >= 0 or send.update == 1 then
        move(group, math.min(wanted_at(send), group.cap))
      end
      add(group, send)
      flush_if_full(group)
      answer(APPENDED, group, group.count)
    elseif closed then -- a closed partition opens no group (engine/expansion.py)
      if group then
        flush(group)
      end
      refuse(MOVED, 0, 0, closed, '')
    elseif free(send.id) then
      if group then
        flush(group)
      end
      open(send)
    end
  end
end
return finish(results, table.concat(names))
