#!/bin/bash
set -eu
sed -i 's/    for value, sign in TABLE:/    for value, sign in sorted(TABLE, reverse=True):/' roman/__init__.py
