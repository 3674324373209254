-- refs: ids and tokens of a batch. `width` numbers per job: id size, token size, then the operation's own. Numbers for the
-- whole call may follow, fewer than `width`.
local function refs(width)
  local N, ids, tokens, at = cmsgpack.unpack(ARGV[5]), {}, {}, 1
  for i = 1, math.floor(#N / width) do
    local o = (i - 1) * width
    ids[i] = string.sub(blob, at, at + N[o + 1] - 1)
    at = at + N[o + 1]
    tokens[i] = string.sub(blob, at, at + N[o + 2] - 1)
    at = at + N[o + 2]
  end
  return ids, tokens, N, at
end

-- The answer of an unused partition: every id is unknown.
local function none_found(n, width)
  local results = {}
  for i = 1, n do
    put(results, NOT_FOUND)
    for _ = 2, width do
      put(results, 0)
    end
  end
  return reply(0, 0, 0, cmsgpack.pack(results), '')
end
