-- intern: replaces the policies of a batch by numbers; equal ones are stored once per partition. Needs FIELDS pn and
-- q + text, and N, texts.
local interned, used = {}, tonumber(M.pn or 0)
for i = 1, N[2] do
  local number = M['q' .. texts[i]]
  if number then
    interned[i] = tonumber(number)
  elseif used < 250 then
    used = used + 1
    interned[i] = used
    put(set, 'q' .. texts[i], int(used))
    put(set, 'p' .. used, texts[i])
    put(set, 'pn', int(used))
  else
    interned[i] = 0 -- the table is full: the job's record contains the policy
  end
end
