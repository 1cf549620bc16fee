#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
cd /app
python3 -m unittest discover -s tests
[ "$(grep -c assertEqual tests/test_roman.py)" = 4 ]
echo 1 >/logs/verifier/reward.txt
