#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
cd /app
[ "$(cat server.ini)" = "$(printf '[server]\nname = herald\nport = 9090')" ]
[ "$(cat price.txt)" = '$5 and not more' ]
sha256sum -c price.sum
echo 1 >/logs/verifier/reward.txt
