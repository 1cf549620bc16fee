#!/bin/bash
set -eu
umask 077
head -c 16 /dev/urandom >key
