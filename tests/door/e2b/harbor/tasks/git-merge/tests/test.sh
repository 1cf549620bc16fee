#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
cd /home/agent/plans
[ "$(stat -c %U .git/HEAD)" = agent ]
[ "$(su agent -c 'git log -1 --format=%P' | wc -w)" = 2 ]
[ "$(sort list | tr '\n' ' ')" = "hut paint wood " ]
[ -z "$(su agent -c 'git status --porcelain')" ]
echo 1 >/logs/verifier/reward.txt
