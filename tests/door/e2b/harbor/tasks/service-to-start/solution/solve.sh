#!/bin/bash
set -eu
setsid nohup python3 -m http.server 9000 --directory /site >/dev/null 2>&1 </dev/null &
until curl -sf http://127.0.0.1:9000/ >/dev/null; do sleep 0.1; done
