#!/bin/sh
# Build the dashboard in a copy and compare it with the committed files, byte for byte. Without a suitable Node this is
# skipped: the committed files are served as they are.
set -eu
cd "$(dirname "$0")/.."
built=src/dueline/server/static/ui
if ! command -v npm >/dev/null || ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2>/dev/null; then
    echo "test-ui: skipped, because it needs Node 20.19 or newer, and npm"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/dueline/server/static"
git ls-files -z ui | tar --null -T - -c | tar -x -C "$work"
if ! (cd "$work/ui" && npm install --no-save --no-audit --no-fund --loglevel=error >/dev/null 2>"$work/why"); then
    echo "test-ui: skipped, because npm could not fetch the tools:"
    tail -n 3 "$work/why"
    exit 0
fi
(cd "$work/ui" && npm run --silent build >/dev/null)
if ! diff -r "$work/$built" "$built"; then
    echo "test-ui: the committed files are not those that the sources give: run make ui and commit them" >&2
    exit 1
fi
echo "test-ui: the committed files are those that the sources give"
