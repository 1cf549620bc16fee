#!/bin/bash
set -eu
sed -i 's/^port = .*/port = 9090/' server.ini
