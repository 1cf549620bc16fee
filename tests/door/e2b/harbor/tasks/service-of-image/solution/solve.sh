#!/bin/bash
set -eu
until curl -sf http://127.0.0.1:8000/ >/dev/null; do sleep 0.1; done
for _ in 1 2 3 4 5; do curl -sf -X POST http://127.0.0.1:8000/ >/dev/null; done
