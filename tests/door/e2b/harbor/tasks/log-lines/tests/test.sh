#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
[ "$(wc -l </var/log/app/access.log)" = 2000 ]
[ "$(tr '\n' ' ' </work/worst.txt)" = "10.0.0.3 10.0.0.5 10.0.0.1 " ]
echo 1 >/logs/verifier/reward.txt
