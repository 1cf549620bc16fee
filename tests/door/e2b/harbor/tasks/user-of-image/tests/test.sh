#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
[ "$(cat /built-as-root)" = root ]
[ "$(cat /home/agent/built-as)" = agent ]
[ "$(stat -c '%U %a %s' /home/agent/key)" = "agent 600 16" ]
echo 1 >/logs/verifier/reward.txt
