-- retries: the jobs that wait for another attempt, as a second index (w+id, in d): their time in the schedule + RETRIES, so they
-- sort after all deaths. It exists for the forecast alone; a job is in it exactly while it waits and has used an attempt.
local RETRIES = 1125899906842624 -- 2^50, above LAST
