"""Push delivery: a dispatcher pulls jobs like any other consumer, and delivers each by an HTTP call.

job --courier--> calls --outgoing_calls--> the target    header_rules: which headers are sent
                               ^                         signing:      how a receiver verifies the caller
                          egress: may this address be called? One check, in front of every call.
"""
