#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
[ "$(cat /where)" = /srv/queue/inbox ]
[ "$(ls /srv/queue/done/txt | wc -l)" = 3 ]
[ "$(cat /srv/queue/done/log/2.log)" = 2 ]
[ -z "$(ls /srv/queue/inbox)" ]
echo 1 >/logs/verifier/reward.txt
