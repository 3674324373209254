"""What the pages need of curl, for machines without it: one request, the answer's body on standard output.

    curl [-s] [-X METHOD] [-H 'Name: value']... [-d DATA] [--noproxy '*'] URL

Like curl it takes options on both sides of the URL, sends a form's media type unless a header says otherwise, and ends
with success whatever the status is. An option that it does not know is an error, so that a page cannot mean more than
what was executed.
"""

from __future__ import annotations

import argparse
import http.client
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

FORM = "application/x-www-form-urlencoded"


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="curl", allow_abbrev=False, add_help=False)
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    parser.add_argument("--noproxy")
    parser.add_argument("url")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    asked = arguments(given)
    url = urlsplit(asked.url)
    headers = dict(header.split(": ", 1) for header in asked.headers)
    if asked.data is not None and "content-type" not in {name.lower() for name in headers}:
        headers["Content-Type"] = FORM
    method = asked.method or ("GET" if asked.data is None else "POST")
    body = None if asked.data is None else asked.data.encode()
    connection = http.client.HTTPConnection(url.netloc, timeout=60)
    try:
        connection.request(method, url.path + (f"?{url.query}" if url.query else ""), body, headers)
        sys.stdout.buffer.write(connection.getresponse().read())
    except OSError as error:
        print(f"curl: {error}", file=sys.stderr)
        return 7
    finally:
        connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
