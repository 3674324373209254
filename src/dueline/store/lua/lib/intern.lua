-- intern: replaces the policies of a batch by numbers; equal ones are stored once per partition. Needs texts, and FIELDS
-- that end with pn and q + text of each.
local interned, pn = {}, 6 + #FIELDS - #texts
local used -- how many numbers; read when a policy needs a new one
for i = 1, #texts do
  local number = V[pn + i]
  if number then
    interned[i] = number + 0
  else
    used = used or tonumber(V[pn] or 0)
    if used < 250 then
      used = used + 1
      interned[i] = used
      set[#set + 1] = 'q' .. texts[i]
      set[#set + 1] = string.format('%d', used)
      set[#set + 1] = 'p' .. used
      set[#set + 1] = texts[i]
      set[#set + 1] = 'pn'
      set[#set + 1] = string.format('%d', used)
    else
      interned[i] = 0 -- the table is full: the job's record contains the policy
    end
  end
end
