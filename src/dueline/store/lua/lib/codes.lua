-- codes: the numbers of engine.store.Code and of the states, by name.
local OK, CREATED, KEPT, REPLACED, APPENDED, DEAD = 0, 1, 2, 3, 4, 5
local NOT_FOUND, ID_EXISTS, LEASE_LOST, JOB_LEASED, ALREADY_DONE, VERSION_MISMATCH, BROKEN, ELSEWHERE = 10, 11, 12, 13, 14, 15, 16, 17
local MOVED = 18
local STATE = { s = 1, r = 2, l = 3, D = 4, X = 5, C = 6 }
