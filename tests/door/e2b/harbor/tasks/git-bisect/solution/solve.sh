#!/bin/bash
set -eu
git bisect start HEAD "$(git rev-list --max-parents=0 HEAD)"
git bisect run sh -c '[ "$(./price 3)" = 30 ]' >/dev/null
git rev-parse refs/bisect/bad >/guilty.txt
git bisect reset
