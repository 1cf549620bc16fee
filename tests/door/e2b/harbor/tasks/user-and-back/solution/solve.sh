#!/bin/bash
set -eu
echo seen >>log
