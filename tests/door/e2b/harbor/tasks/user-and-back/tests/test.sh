#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
[ "$(cat /tmp/first /tmp/second | tr '\n' ' ')" = "agent root " ]
[ "$(stat -c %U /srv/shared/log)" = agent ]
[ "$(tr '\n' ' ' </srv/shared/log)" = "begun seen " ]
echo 1 >/logs/verifier/reward.txt
