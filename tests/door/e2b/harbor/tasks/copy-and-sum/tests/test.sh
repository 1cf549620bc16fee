#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
[ "$(cat /app/total.txt)" = 4242 ]
[ "$(stat -c %a /usr/local/bin/sum-of)" = 750 ]
[ "$(stat -c %u:%g /app/mine.txt)" = 1000:1000 ]
[ "$(stat -c %u:%g /data/january.csv)" = 0:0 ]
[ "$(ls /app/notes | tr '\n' ' ')" = "one.txt two.txt " ]
[ ! -e /app/notes/three.md ]
echo 1 >/logs/verifier/reward.txt
