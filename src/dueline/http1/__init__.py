"""HTTP/1.1 as a client speaks it: for the SDK, which calls servers, and for push, which calls targets."""
