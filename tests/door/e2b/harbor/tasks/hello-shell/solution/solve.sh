#!/bin/bash
set -eu
echo "hello from the bothy" >greeting.txt
