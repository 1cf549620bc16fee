#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
[ "$(cat /srv/job/stamp.txt)" = "good day-plain" ]
[ "$TOOLS_HOME" = /opt/tools ]
echo 1 >/logs/verifier/reward.txt
