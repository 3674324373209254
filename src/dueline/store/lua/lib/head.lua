-- head: the beginning of every script on a partition, after lib/time. Names KEYS and ARGV once, reads the partition's own
-- fields once, and refuses to change anything if the clock jumped. It builds no closure and no table of fields, because
-- they cost as much as the work itself: a script may have its usual case right after this, and lib/tools after that.
local m, j, r, s, l, a, d, g, k = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local caller, nonce, blob, channel, permanent = ARGV[3], ARGV[4], ARGV[6], ARGV[7], ARGV[8] == '1'
-- Namespaces with `namespace_ids`: ids are unique over all topics, so a record names its topic. `topic` is this
-- partition's ('' = the caller knows only the id). `other` is the topic of a second partition, whose keys follow the
-- first nine (m s l a d g k).
local topic, other = ARGV[10], ARGV[11]
local REPLY = '>BBI8I8I4' -- lib/reply
local call, sub, pack, read = redis.call, string.sub, struct.pack, struct.unpack

local memory = 'c:' .. caller -- the field of m with the remembered call
-- Numbers in V are texts. In the usual cases `+ 0` reads them, at half the cost of `tonumber`.
-- The fields of m: 1 remembered call, 2 last send number, 3 in-flight limit, 4 until when a pull waits, 5 next hint, 6 listed,
-- then FIELDS.
local V = call('HMGET', m, memory, 'seq', 'mif', 'wu', 'ag', 'reg', unpack(FIELDS))
local set = {} -- fields of m to write at the end, together with the remembered answer of this call
-- A repeated call is answered from memory even if the clock differs, because a delayed call must not run a second time.
local again = V[1] and sub(V[1], 1, 8) == nonce
if stepped and not again then
  return pack(REPLY, 1, 0, now, 0, 0)
end
