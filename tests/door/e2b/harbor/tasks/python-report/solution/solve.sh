#!/bin/bash
set -eu
python3 - <<'EOF'
import json
report = {}
for order in json.load(open("orders.json")):
    one = report.setdefault(order["customer"], {"orders": 0, "sum": 0})
    one["orders"] += 1
    one["sum"] += order["amount"]
json.dump(report, open("report.json", "w"), sort_keys=True)
EOF
