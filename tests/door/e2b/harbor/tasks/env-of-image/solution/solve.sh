#!/bin/bash
set -eu
"$TOOLS_HOME/bin/stamp" >stamp.txt
