#!lua
-- send: store new jobs, and apply the conflict rules to ids that are taken.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time)   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  policy_version, count of policies, their sizes, count of jobs, then per run of jobs that are alike:
--                 how many, id size, flags, policy index, when (delay, or -at), ttl, rules (live + 4 ended + 16 overdue)
--                 then the size of each job's rest
--                 then per job with an occurrence: its place, version, at, schedule size; per job that replaces a
--                 version: its place, version, 0, -1
--        blob     the policies, the ids, per job its rest (crc, fingerprint, sections, body), the schedules
--        9 ""   10 topic   11 another topic whose keys m s l a d g k are KEYS 10-16   12 its channel   (namespaces with `namespace_ids`)
-- RETURN status now note extra numbers (per job: code, state, due, version)   blob           (lib/reply)
--        three numbers: all jobs were created; now, now rounded up, the send number of the last job (codec.decode_created)
--        code ELSEWHERE: the id is used in another topic (size of its name instead of due; blob: the names); nothing
--        was done. State 0: call again with that topic as the second one; otherwise this is the final answer.
--        status 3: the partition has other data than the caller knows (lib/epoch): its last number instead of note, its
--        epoch instead of numbers, the number that it lost instead of blob; nothing was done
--        status 2: the partition has another policy, its version instead of note; nothing was done
--        code MOVED: the partition is closed and does not hold the id; version is that of lib/closed
-- BOUND  O(n log N), n <= 500 jobs and 1 MiB
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
-- include intern
local base, n = 4 + N[2], N[3 + N[2]]
local ids, i, o, fresh = { unpack(N, 1, n) }, 0, base, true
while i < n do
  local last, size = i + N[o], N[o + 1]
  for place = i + 1, last do
    ids[place] = sub(blob, at, at + size - 1)
    at = at + size
  end
  fresh = fresh and N[o + 2] % 32 < 16 and interned[N[o + 3]] > 0 -- no tags, and its policy has a number
  i, o = last, o + 7
end
local sizes = o - 1 -- in front of those of the rests
fresh = fresh and #N == sizes + n -- no occurrences, no versions to replace
local records = call('HMGET', j, unpack(ids))
local runs = call('HMGET', r, unpack(ids))
for place = 1, n do
  if records[place] or runs[place] then -- the id is taken
    fresh = false
  end
end

-- The usual case: new jobs whose times are all that needs an index entry, on an open partition with the data and the policy
-- that the caller knows. Tables have their size from the beginning, because growing costs more than filling them.
local agrees = V[7] == epoch and (V[2] or -1) + 0 >= highest and (V[8] and V[8] + 0 <= N[1] or not V[8] and N[1] == 0)
local is_open = not V[9]
if topic and is_open then -- as in lib/closed
  is_open = not tonumber(call('HGET', j, ''))
end
if fresh and agrees and is_open and not again and (V[2] or not permanent) then -- else lib/tools opens it
  local seq, first, soonest, ends_at = (V[2] or 0) + 0, LAST, nil, nil
  local h, z = { unpack(N, 1, 2 * n) }, { unpack(N, 1, 2 * n) }
  local created = pack('>I6', start)
  i = 0
  for o = base, sizes, 7 do
    local when, ttl, due = N[o + 4], N[o + 5], now
    if when > 0 then
      due = math.min(start + when, LAST)
    elseif when < 0 then
      due = math.min(math.max(-when, now), LAST)
    end
    if due < first then
      first = due
    end
    local flags, text, last = string.char(N[o + 2], interned[N[o + 3]]), string.format('%d', due), i + N[o]
    for place = i + 1, last do -- concatenating costs less than packing a text
      seq = seq + 1
      local id, number, behind = ids[place], pack('>I5', seq), at + N[sizes + place]
      h[2 * place - 1], h[2 * place] = id, flags .. number .. created .. sub(blob, at, behind - 1)
      z[2 * place - 1], z[2 * place] = text, number .. id
      at = behind
      if ttl > 0 then
        local ends = math.min(due + ttl, LAST)
        ends_at, soonest = ends_at or {}, math.min(soonest or LAST, ends)
        ends_at[#ends_at + 1] = string.format('%d', ends)
        ends_at[#ends_at + 1] = 'x' .. id
      end
    end
    i = last
  end
  local wake = false -- a waiter must be woken, because one of these jobs is due before all others
  if V[4] and V[4] + 0 > now then
    local top = call('ZRANGE', s, 0, 0, 'WITHSCORES')
    wake = not top[2] or first < top[2] + 0
  end
  call('HSET', j, unpack(h))
  call('ZADD', s, unpack(z))
  local note, packed = 0, cmsgpack.pack({ now, start, seq })
  if soonest then
    call('ZADD', a, unpack(ends_at))
    local agenda = (V[5] or 0) + 0
    soonest = math.min(math.ceil(soonest / 10000) * 10000, LAST)
    note = (agenda <= now or soonest < agenda) and soonest or 0
  end
  call('HSET', m, 'seq', string.format('%d', seq), memory, pack('>c0I6I4c0', nonce, now, #packed, packed), unpack(set))
  if wake then
    call('SPUBLISH', channel, '')
  end
  return pack(REPLY, 0, V[6] and 0 or 1, now, note, #packed) .. packed
end

-- include tools
-- include reply
-- include write
if again then
  return earlier_reply()
end
-- include closed
-- include codes
local results = {}

-- A closed partition takes no new id.
local function moved()
  put(results, MOVED, 0)
  put(results, 0, closed)
end

if fresh and topic and closed and not known and not opens then -- the topic is new here, so it does not become known
  for _ = 1, n do
    moved()
  end
  return reply(0, 0, 0, cmsgpack.pack(results), '')
end
-- include epoch
-- A newer policy, or the topic was deleted. Where a namespace has closed it, a partition need not know the policy.
if M.pv and tonumber(M.pv) > N[1] or not M.pv and N[1] > 0 and not (topic and closed) then
  return reply(2, tonumber(M.pv or 0), 0, '', '')
end

open_partition()
-- include record
-- include judge
-- include items
-- include ends
-- include elsewhere
-- include fence
local rests, of = {}, {} -- per job; where its numbers are
for place = 1, n do
  local size = N[sizes + place]
  rests[place] = string.sub(blob, at, at + size - 1)
  at = at + size
end
for o = base, sizes, 7 do
  for _ = 1, N[o] do
    put(of, o)
  end
end

local function store(i, code)
  local o = of[i]
  local id, rest, flags, when, ttl = ids[i], rests[i], N[o + 2], N[o + 4], N[o + 5]
  local number = interned[N[o + 3]]
  if number == 0 then
    local text = texts[N[o + 3]]
    flags = flags + 64
    rest = string.sub(rest, 1, 12) .. struct.pack('>I2', #text) .. text .. string.sub(rest, 13)
  end
  local due
  if when == 0 then
    due = now
  elseif when > 0 then
    due = math.min(start + when, LAST)
  else
    due = math.min(math.max(-when, now), LAST)
  end
  seq = seq + 1
  local record = struct.pack(HEAD, flags, number, seq, start) .. rest
  collect('hj', id, record)
  collect('zs', int(due), member(seq, id))
  if ttl > 0 then
    local ends = math.min(due + ttl, LAST)
    collect('za', int(ends), 'x' .. id)
    work_at(ends)
  end
  deliverable_at(due)
  put(results, code, due <= now and 2 or 1)
  put(results, due, seq)
  return record
end

local names = {}
local occurrences, replaced = {}, {} -- by place
for o = sizes + n + 1, #N, 4 do
  if N[o + 3] < 0 then
    replaced[N[o]] = N[o + 1]
  else
    occurrences[N[o]] = { version = N[o + 1], at = N[o + 2], schedule = string.sub(blob, at, at + N[o + 3] - 1) }
    at = at + N[o + 3]
  end
end

-- What happens to the job that has the id: 0 reject, 1 keep, 2 replace.
local function rule_of(old, rules)
  if is_overdue(old) then
    return math.floor(rules / 16)
  elseif old.state == 's' or old.state == 'r' or old.state == 'l' then
    return rules % 4
  end
  return math.floor(rules / 4) % 4
end

local function store_tagged(i, code)
  local job = { id = ids[i] }
  read_record(job, store(i, code))
  each_tag(job, function(entry)
    collect('zk', 0, entry)
  end)
  local occurrence = occurrences[i]
  if occurrence then
    write_fence(occurrence.schedule, occurrence.version, occurrence.at)
  end
end

-- Replaces the live job that has the expected version (0: there must be none), and keeps its progress.
local function replace(i)
  local old = load({ ids[i] })[1]
  local live = old.state == 's' or old.state == 'r' or old.state == 'l'
  if replaced[i] ~= (live and old.seq or 0) then
    put(results, VERSION_MISMATCH, STATE.D)
    put(results, 0, live and old.seq or 0)
    return
  end
  if old.phase then
    forget(old)
  elseif old.raw then
    collect('dj', old.id)
  end
  store_tagged(i, live and REPLACED or CREATED)
  if live and old.progress then
    local due, ttl = results[#results - 1], N[of[i] + 5]
    old.reason, old.deliveries, old.uncounted, old.given, old.token, old.error, old.past = 0, 0, 0, 0, NO_TOKEN, '', nil
    old.time, old.due, old.exp, old.changed = due, due, ttl > 0 and math.min(due + ttl, LAST) or 0, start
    collect('hr', old.id, run_text(old, 'W'))
  end
end

local function create(i)
  if closed then
    moved()
  else
    store_tagged(i, CREATED)
  end
end

for i = 1, n do
  local occurrence = occurrences[i]
  local code = occurrence and decided(occurrence.schedule, occurrence.version, occurrence.at)
  if code then
    local fence = fence_of(occurrence.schedule)
    put(results, code, STATE.D)
    put(results, fence.at, fence.version)
  elseif replaced[i] then
    replace(i)
  elseif not records[i] and not runs[i] then
    create(i)
  else
    local rules = N[of[i] + 6]
    local old = load({ ids[i] })[1]
    if old.state == 'E' or (old.home and old.home ~= m) then
      if old.state ~= 'E' and (old.state == nil or rule_of(old, rules) == 2) then
        leave_other(old)
        collect('dr', old.id)
        if closed and (old.state == nil or old.state == 'D' or old.state == 'C') then
          collect('dj', old.id)
          moved()
        else
          store_tagged(i, old.state and REPLACED or CREATED)
        end
      else
        put(results, ELSEWHERE, STATE[old.state] or 0)
        put(results, #old.topic, 0)
        put(names, old.topic)
      end
    elseif old.state == nil then
      if old.phase then
        forget(old) -- its retention is over, but clean-up has not run yet
      elseif old.raw then
        collect('dj', old.id)
      end
      create(i)
    else
      local rule = rule_of(old, rules)
      if rule == 2 then
        forget(old)
        if closed and (old.state == 'D' or old.state == 'C') then -- any other job is kept until its successor is stored
          moved()
        else
          store_tagged(i, REPLACED)
        end
      else
        local same = not occurrence and (rule == 1 or string.sub(old.raw or old.head, 18, 25) == string.sub(rests[i], 5, 12))
        put(results, same and KEPT or ID_EXISTS, STATE[old.state])
        put(results, old.due, old.seq)
      end
    end
  end
end
keep_fences()
return finish(results, table.concat(names))
