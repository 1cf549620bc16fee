#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
[ "$(curl -sf http://127.0.0.1:8000/)" = 5 ]
echo 1 >/logs/verifier/reward.txt
