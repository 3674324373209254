"""Opening a store, running an engine on it, and stopping both in order. The server, the mounted server, direct queues,
the command line and the testing kit all use this package.

    locations.StoreLocation   where a store's process is: it may be started here (an embedded store), or already run
    access.StoreAccess        one store at a location: waits for it, checks it, connects
    watch.StoreWatch          checks it again while it is used
    guards.Guards             what is wrong with each of its shards now
    runtime.Runtime           a store and its engine: start, stop in order

Only `runtime.runtime` can be imported without the server's packages: the testing kit uses it on the memory store.
"""
