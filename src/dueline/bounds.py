"""Fixed bounds of values, for the types of the API and the checks of the engine. No configuration changes them."""

MAX_ITEMS = 1000  # jobs, leases or ids in one request
MAX_GROUP_ITEMS = 1000  # items in one merge group
MAX_PULL_TOPICS = 100
MAX_WAITS = 32  # of a retry ladder
MAX_URL_CHARS = 2048
MAX_TIMEOUT_MS = 3_600_000
MAX_CONCURRENCY = 10_000
MAX_RATE_PER_S = 1_000_000.0
MAX_SUCCESS = 100  # statuses that mean success
MAX_SECRETS = 2
MAX_BANDS = 64  # of a topic's scheduled jobs, by how soon they are due
MAX_EDGES = 64  # times between which a forecast counts
MAX_PATTERNS = 64  # topic patterns of a token
