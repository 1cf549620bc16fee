#!/bin/bash
# Reward 1 if every check holds.
echo 0 >/logs/verifier/reward.txt
set -eux
python3 - <<'EOF'
import json
got = json.load(open("/data/report.json"))
assert list(got) == ["a", "b", "c"], got
assert [got[k]["orders"] for k in got] == [100] * 3, got
assert sum(got[k]["sum"] for k in got) == sum(range(300)), got
EOF
echo 1 >/logs/verifier/reward.txt
