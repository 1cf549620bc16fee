#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
cd /repo
[ "$(git log -1 --format=%s "$(cat /guilty.txt)")" = "step 13" ]
[ "$(git rev-list --count main)" = 24 ]
echo 1 >/logs/verifier/reward.txt
