"""Jobs that go to their consumer by themselves: HTTP calls, made by a dispatcher that pulls and acks as anybody does.

job --courier--> calls --outgoing--> the target          forwarded: which headers travel
                            ^                            signing:   how a receiver knows that it was us
                          egress: may this address be called? One place, in front of every call.
"""
