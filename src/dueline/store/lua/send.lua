#!lua
-- send: store new jobs, and apply the conflict rules to ids that are taken.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected:tolerance:epoch:highest   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  policy_version, count of policies, their sizes, count of jobs, then per job:
--                 id size, rest size, flags, policy index, when (delay, or -at), ttl, rules (live + 4 ended + 16 overdue)
--                 then per job with an occurrence: its place, version, at, schedule size; per job that replaces a
--                 version: its place, version, 0, -1
--        blob     the policies, then per job: id, rest (crc, fingerprint, sections, body); then the schedules
--        9 ""   10 topic   11 another topic whose keys m s l a d g k are KEYS 10-16   12 its channel   (namespaces with `namespace_ids`)
-- RETURN status now note extra numbers (per job: code, state, due, version)   blob
--        code ELSEWHERE: the id is used in another topic (size of its name instead of due; blob: the names); nothing
--        was done. State 0: call again with that topic as the second one; otherwise this is the final answer.
--        status 3: the partition has other data than the caller knows (lib/epoch): its last number instead of note, its
--        epoch instead of numbers, the number that it lost instead of blob; nothing was done
--        code MOVED: the partition is closed and does not hold the id; version is that of lib/closed
-- BOUND  O(n log N), n <= 500 jobs and 1 MiB
local N = cmsgpack.unpack(ARGV[5])
local texts, at = {}, 1
local FIELDS = { 'pv', 'pn', 'xc' }
for i = 1, N[2] do
  texts[i] = string.sub(ARGV[6], at, at + N[2 + i] - 1)
  FIELDS[3 + i] = 'q' .. texts[i]
  at = at + N[2 + i]
end
FIELDS[#FIELDS + 1] = 'ep'
-- include time
-- include head
-- include write
local again = earlier_reply()
if again then
  return again
end
-- include closed
-- include codes
local base, n = 3 + N[2], N[3 + N[2]]
local ids, rests, results = {}, {}, {}
for i = 1, n do
  local o = base + (i - 1) * 7
  local middle = at + N[o + 1]
  local behind = middle + N[o + 2]
  ids[i] = string.sub(blob, at, middle - 1)
  rests[i] = string.sub(blob, middle, behind - 1)
  at = behind
end
local records = redis.call('HMGET', j, unpack(ids))
local runs = redis.call('HMGET', r, unpack(ids))

-- A closed partition takes no new id.
local function moved()
  put(results, MOVED, 0)
  put(results, 0, closed)
end

local usual = #N == base + n * 7 -- all ids are free, and only their times need an index entry
for i = 1, n do
  usual = usual and not records[i] and not runs[i] and N[base + i * 7 - 4] % 32 < 16
end
if usual and topic and closed and not known then -- the topic is new here, so it does not become known
  for i = 1, n do
    moved()
  end
  return { 0, now, 0, 0, cmsgpack.pack(results), '' }
end
-- include epoch
-- A newer policy, or the topic was deleted. Where a namespace has closed it, a partition need not know the policy.
if M.pv and tonumber(M.pv) > N[1] or not M.pv and N[1] > 0 and not (topic and closed) then
  return { 2, now, 0, tonumber(M.pv or 0), '', '' }
end

open_partition()
-- include intern

local function store(i, code)
  local o = base + (i - 1) * 7
  local id, rest, flags, when, ttl = ids[i], rests[i], N[o + 3], N[o + 5], N[o + 6]
  local number = interned[N[o + 4]]
  if number == 0 then
    local text = texts[N[o + 4]]
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

if usual then
  for i = 1, n do
    if closed then
      moved()
    else
      store(i, CREATED)
    end
  end
  return finish(results, '')
end

-- The rest costs as much as a single send itself, so only sends that need it get here.
-- include record
-- include judge
-- include items
-- include ends
-- include elsewhere
-- include fence
local names = {}
local occurrences, replaced = {}, {} -- by place
for o = base + n * 7 + 1, #N, 4 do
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
    local due, ttl = results[#results - 1], N[base + i * 7 - 1]
    old.reason, old.deliveries, old.uncounted, old.given, old.token, old.error = 0, 0, 0, 0, NO_TOKEN, ''
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
    local rules = N[base + i * 7]
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
