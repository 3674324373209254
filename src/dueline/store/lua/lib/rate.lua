-- rate: at most so many deliveries a second, by a bucket of tokens in m: rt tokens a second, rk tokens at the moment ra.
-- It holds one token and 100 ms worth of them: that much may leave at once after a rest, and who comes up to 100 ms late
-- loses nothing. A token that was spent is spent: a job that is given back takes another one when it is pulled again.
local SPARE = 1e-9 -- what rounding may cost: without it a token would come a millisecond late
local rate = M.rt and tonumber(M.rt) > 0 and tonumber(M.rt) or nil

local function most(per_second)
  return 1 + per_second / 10
end

-- The tokens that are there now. A clock that went back must not stop the partition until it is there again.
local function refilled()
  return math.min(most(rate), tonumber(M.rk) + math.max(0, now - tonumber(M.ra)) * rate / 1000)
end

local function whole(tokens)
  return math.floor(tokens + SPARE)
end

local function keep_tokens(tokens)
  put(set, 'rk', string.format('%.17g', tokens))
  put(set, 'ra', int(now))
end

-- The first moment with a whole token.
local function allowed_at(tokens)
  if whole(tokens) >= 1 then
    return now
  end
  return math.min(now + math.max(1, math.ceil((1 - SPARE - tokens) * 1000 / rate)), LAST)
end

-- A new rate begins with one token; a changed one goes on with what is there.
local function set_rate(per_second)
  put(set, 'rt', string.format('%.17g', per_second))
  if per_second > 0 then
    keep_tokens(rate and math.min(refilled(), most(per_second)) or 1)
  end
end
