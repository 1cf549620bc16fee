#!/bin/bash
set -eu
awk '$2 == 500 { n[$1]++ } END { for (a in n) print n[a], a }' /var/log/app/access.log | sort -rn | head -n 3 | cut -d' ' -f2 >worst.txt
