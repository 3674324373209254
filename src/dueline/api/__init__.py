"""The native API as values: requests, answers and the table of operations. Client and server share them; no I/O.

    call(operation, request) -> answer

HTTP encodes and decodes these values. A queue in the same process hands them to the same handlers (dialects.native).
"""
