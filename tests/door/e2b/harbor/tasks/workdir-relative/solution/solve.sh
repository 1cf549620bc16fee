#!/bin/bash
set -eu
for kind in txt log; do
    mkdir -p done/$kind
    mv inbox/*.$kind done/$kind/
done
