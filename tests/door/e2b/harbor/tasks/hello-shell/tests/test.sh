#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
[ -f /app/README ]
[ "$(cat /app/greeting.txt)" = "hello from the bothy" ]
echo 1 >/logs/verifier/reward.txt
