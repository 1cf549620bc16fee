#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
[ "$(curl -sf http://127.0.0.1:9000/index.html)" = "$(cat /site/index.html)" ]
pgrep -f 'http.server 9000' >/dev/null
echo 1 >/logs/verifier/reward.txt
