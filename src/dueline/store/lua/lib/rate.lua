-- rate: limits deliveries per second with a token bucket in m: rt tokens per second, rk tokens at the time ra.
-- The bucket holds one token plus 100 ms worth of tokens. This is the largest burst after an idle time, and a pull that
-- comes up to 100 ms late loses nothing. Tokens are not refunded: a released job costs another one when pulled again.
local SPARE = 1e-9 -- tolerance for rounding, without which a token could come a millisecond late
local rate = M.rt and tonumber(M.rt) > 0 and tonumber(M.rt) or nil
local bucket = rate and redis.call('HMGET', m, 'rk', 'ra') -- tokens, and when

local function most(per_second)
  return 1 + per_second / 10
end

-- The tokens available now. If the clock went back, deliveries must not stop until it has caught up.
local function refilled()
  return math.min(most(rate), tonumber(bucket[1]) + math.max(0, now - tonumber(bucket[2])) * rate / 1000)
end

local function whole(tokens)
  return math.floor(tokens + SPARE)
end

local function keep_tokens(tokens)
  put(set, 'rk', string.format('%.17g', tokens))
  put(set, 'ra', int(now))
end

-- The earliest time with a whole token.
local function allowed_at(tokens)
  if whole(tokens) >= 1 then
    return now
  end
  return math.min(now + math.max(1, math.ceil((1 - SPARE - tokens) * 1000 / rate)), LAST)
end

-- A new limit begins with one token; a changed one keeps its tokens.
local function set_rate(per_second)
  put(set, 'rt', string.format('%.17g', per_second))
  if per_second > 0 then
    keep_tokens(rate and math.min(refilled(), most(per_second)) or 1)
  end
end
