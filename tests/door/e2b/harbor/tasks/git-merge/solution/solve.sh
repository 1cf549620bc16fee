#!/bin/bash
set -eu
git merge -q winter || true
printf 'hut\npaint\nwood\n' >list
git add list
git commit -q -m "merge winter"
